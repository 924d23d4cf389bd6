//! Many streams that are open at once.

use crate::chat::{Answer, Flow, Life, Script};
use crate::load::{self, Target};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// How many are being opened at one time.
const OPENING: usize = 128;
const PATIENCE: Duration = Duration::from_secs(45);

/// Streams that gave their first chunk, and are held. Dropping it ends them.
pub(crate) struct Open {
    held: Vec<(Box<dyn Send>, Incoming)>,
}

impl Open {
    pub(crate) fn count(&self) -> usize {
        self.held.len()
    }

    /// Reads on in all of them, and counts.
    pub(crate) fn watch(self) -> Watched {
        let chunks = Arc::new(AtomicUsize::new(0));
        let count = self.count();
        let mut reading = JoinSet::new();
        for (sender, mut body) in self.held {
            let chunks = Arc::clone(&chunks);
            reading.spawn(async move {
                let _sender = sender;
                while let Some(Ok(frame)) = body.frame().await {
                    let data = frame.data_ref().map_or(&[][..], |data| data);
                    let events = memchr::memmem::find_iter(data, b"\n\n").count();
                    chunks.fetch_add(events, Ordering::Relaxed);
                }
            });
        }
        Watched { count, chunks, _reading: reading }
    }
}

/// Streams that are read. Dropping it ends them.
pub(crate) struct Watched {
    count: usize,
    chunks: Arc<AtomicUsize>,
    _reading: JoinSet<()>,
}

impl Watched {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// So many came so far.
    pub(crate) fn chunks(&self) -> usize {
        self.chunks.load(Ordering::Relaxed)
    }
}

/// Opens `count` streams, each on a connection and in a conversation of its own, as many as come in time.
pub(crate) async fn open(target: &Target, count: usize, answer: Answer) -> Open {
    let script = Script::of_size(1_000);
    let room = Arc::new(Semaphore::new(OPENING));
    let mut opening = JoinSet::new();
    for _ in 0..count {
        let (target, room) = (target.clone(), Arc::clone(&room));
        let ask = Flow::new(&script, Life::USUAL).ask(answer);
        opening.spawn(async move {
            let _permit = room.acquire().await.ok()?;
            let mut sender = load::connect(target.addr).await.ok()?;
            let request = load::request(&target, ask);
            let response = sender.send_request(request).await.ok()?;
            let good = response.status().is_success();
            let mut body = response.into_body();
            body.frame().await?.ok()?;
            let sender: Box<dyn Send> = Box::new(sender);
            good.then_some((sender, body))
        });
    }
    let mut held = Vec::with_capacity(count);
    let all = async {
        while let Some(opened) = opening.join_next().await {
            held.extend(opened.ok().flatten());
        }
    };
    let _ = tokio::time::timeout(PATIENCE, all).await;
    Open { held }
}
