//! One connection, driven by whoever waits for what comes over it.

use super::UpBody;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tokio::net::TcpStream;

/// What a connection runs over.
pub(super) type Carrier = MaybeHttpsStream<TokioIo<TcpStream>>;

/// How often a connection is driven at once before others have their turn.
const PASSES: usize = 4;

/// A connection to the upstream.
pub(super) struct Connection {
    sender: SendRequest<UpBody>,
    /// `None`: it is at its end.
    driver: Option<http1::Connection<Carrier, UpBody>>,
    bell: Arc<Bell>,
    waker: Waker,
}

impl Connection {
    pub(super) async fn over(carrier: Carrier) -> hyper::Result<Self> {
        let (sender, driver) = http1::handshake(carrier).await?;
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(Arc::clone(&bell));
        Ok(Connection { sender, driver: Some(driver), bell, waker })
    }

    pub(super) fn sender(&mut self) -> &mut SendRequest<UpBody> {
        &mut self.sender
    }

    /// Drives it, and looks whether what is waited for has come. Who gets an answer looks again without being woken.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut look: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.bell.answers_to(cx.waker());
        for _ in 0..PASSES {
            self.bell.look();
            self.drive();
            let seen = look(&mut Context::from_waker(&self.waker));
            if !self.bell.rang() || seen.is_ready() {
                return seen;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn drive(&mut self) {
        let mut own = Context::from_waker(&self.waker);
        if let Some(driver) = &mut self.driver
            && Pin::new(driver).poll(&mut own).is_ready()
        {
            // What went wrong is told to whoever waits for the answer.
            self.driver = None;
        }
    }

    /// Nobody waits for anything any more.
    pub(super) fn rests(&self) {
        self.bell.waiting.lock().take();
    }

    /// Whether it takes a request, as far as is known here.
    pub(super) fn stands(&mut self) -> bool {
        self.drive();
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Wakes whoever waits for the connection, unless it is just being driven: most wakes come of the driving itself.
#[derive(Default)]
struct Bell {
    waiting: Mutex<Option<Waker>>,
    looking: AtomicBool,
    rung: AtomicBool,
}

impl Bell {
    fn answers_to(&self, waker: &Waker) {
        let mut waiting = self.waiting.lock();
        match &mut *waiting {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }

    fn look(&self) {
        self.looking.store(true, Ordering::SeqCst);
        self.rung.store(false, Ordering::SeqCst);
    }

    /// Ends the look: from now on it wakes. Whether it rang meanwhile.
    fn rang(&self) -> bool {
        self.looking.store(false, Ordering::SeqCst);
        self.rung.load(Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.rung.store(true, Ordering::SeqCst);
        if !self.looking.load(Ordering::SeqCst)
            && let Some(waiting) = &*self.waiting.lock()
        {
            waiting.wake_by_ref();
        }
    }
}
