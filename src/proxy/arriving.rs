//! A body that goes up as it comes, on a route that nobody judges: within the bounds of one that is read whole.
//!
//! What ends at a bound ends in the middle of the request to the upstream, whose connection is closed for it: its
//! length, or its last chunk, never comes, so no server takes it for whole.

use super::body::Pace;
use crate::guard::fault::Code;
use crate::policy::Limits;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::time::Sleep;

/// Why a body does not go up to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub(crate) enum Unfit {
    /// More than may be.
    TooLarge,
    /// Not in its time.
    Late,
    /// Not all of it.
    BrokeOff,
}

impl Unfit {
    /// The one that is behind an error, if one is.
    pub(super) fn behind(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        std::iter::successors(Some(error), |error| error.source())
            .find_map(|error| error.downcast_ref::<Unfit>().copied())
    }

    /// The code that a client is told.
    pub(super) fn code(self) -> Code {
        match self {
            Unfit::TooLarge => Code::BodyTooLarge,
            Unfit::Late | Unfit::BrokeOff => Code::BodyInvalid,
        }
    }

    /// The same in words.
    pub(super) fn message(self) -> &'static str {
        match self {
            Unfit::TooLarge => "The body is larger than limits.body_bytes.",
            Unfit::Late => "The body did not arrive in time.",
            Unfit::BrokeOff => "The body broke off.",
        }
    }
}

/// A client's body on its way.
#[derive(Debug)]
pub(crate) struct Arriving {
    body: Incoming,
    left: usize,
    pace: Pace,
    timer: Pin<Box<Sleep>>,
}

impl Arriving {
    /// Within these bounds.
    pub(super) fn new(body: Incoming, limits: &Limits) -> Self {
        let pace = Pace::new(limits.header_read_timeout);
        let timer = Box::pin(tokio::time::sleep_until(pace.until()));
        Arriving { body, left: limits.body_bytes, pace, timer }
    }

    fn takes(&mut self, frame: &Frame<Bytes>) -> Result<(), Unfit> {
        let length = frame.data_ref().map_or(0, Bytes::len);
        self.pace.came(length);
        self.left = self.left.checked_sub(length).ok_or(Unfit::TooLarge)?;
        Ok(())
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = Unfit;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unfit>>> {
        let this = self.get_mut();
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let taken = this.takes(&frame);
                this.timer.as_mut().reset(this.pace.until());
                Poll::Ready(Some(taken.map(|()| frame)))
            }
            Poll::Ready(Some(Err(_))) => Poll::Ready(Some(Err(Unfit::BrokeOff))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => this.timer.as_mut().poll(cx).map(|()| Some(Err(Unfit::Late))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
