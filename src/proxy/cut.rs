//! The steps of a drain, as connections and exchanges learn of them.
//!
//! Whoever waits for a [`CancellationToken`] takes its lock with each question, and all of them share one. So they look
//! at a flag, and are entered at the token once each, or not at all where their connection's task is woken anyway.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Whether a step has come: at the last one, what is in flight has to end. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cut {
    is: Arc<AtomicBool>,
    token: CancellationToken,
}

impl Cut {
    /// It has, from now on.
    pub(super) fn now(&self) {
        self.is.store(true, Ordering::Release);
        self.token.cancel();
    }

    /// Whether it has.
    #[must_use]
    pub(super) fn is_now(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }

    /// Ready when it has.
    pub(crate) async fn comes(&self) {
        self.token.cancelled().await;
    }

    /// What `work` gives, or `None` when it has to end first. `woken` says that the task is woken at the end of a drain
    /// without being entered: that of an HTTP/1 connection is, since it waits for its leave to close.
    pub(super) async fn before<T>(&self, woken: bool, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        if !woken {
            return tokio::select! {
                biased;
                done = work => Some(done),
                () = self.comes() => None,
            };
        }
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.is_now() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// A watch for what is polled many times.
    #[must_use]
    pub(super) fn watch(&self) -> Watch {
        let entry = Box::pin(self.token.clone().cancelled_owned());
        Watch { cut: self.clone(), entry, by: None }
    }
}

/// Asks again and again whether it has to end, and is entered at the token by the first of its tasks only.
pub(super) struct Watch {
    cut: Cut,
    entry: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The task that is entered.
    by: Option<Waker>,
}

impl Watch {
    /// Ready when it has to end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.cut.is_now() {
            return Poll::Ready(());
        }
        if self.by.as_ref().is_some_and(|by| by.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        self.by = Some(cx.waker().clone());
        self.entry.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn the_task_that_asked_last_is_woken_and_told() {
        let cut = Cut::default();
        let mut watch = cut.watch();
        let tasks = [Arc::new(Woken::default()), Arc::new(Woken::default())];
        let wakers = tasks.clone().map(Waker::from);
        for waker in [&wakers[0], &wakers[0], &wakers[1], &wakers[1]] {
            assert!(watch.poll(&mut Context::from_waker(waker)).is_pending());
        }
        cut.now();
        assert_eq!(tasks.map(|task| task.0.load(Ordering::SeqCst)), [0, 1]);
        assert!(watch.poll(&mut Context::from_waker(&wakers[1])).is_ready());
    }

    #[tokio::test]
    async fn work_ends_with_its_result_or_with_the_drain() {
        for woken in [false, true] {
            let cut = Cut::default();
            assert_eq!(cut.before(woken, async { 7 }).await, Some(7));
            let never = std::future::pending::<()>();
            let cutting = async {
                cut.now();
                std::future::pending::<()>().await;
            };
            let both = async { tokio::join!(never, cutting) };
            assert!(cut.before(woken, both).await.is_none());
        }
    }
}
