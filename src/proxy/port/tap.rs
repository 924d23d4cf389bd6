//! A connection's bytes, as two look at them: the HTTP server, which reads and writes, and the port, which must
//! learn what a client does while the HTTP server waits for an answer and reads nothing.
//!
//! Two things look the same on the wire: a client that has left, and one that has only ended its own side (half a
//! close: `shutdown(SHUT_WR)`, `nc -N`) and waits for its answer. The first is told by the reset with which its
//! system answers whatever is still sent to it. So an interim response is sent, which every client of HTTP/1.1
//! must be able to read (RFC 9110, section 15.2), and a reset is waited for. It is sent again from time to
//! time: relays of plain TCP (`docker-proxy`, `ssh`, `kubectl port-forward`) swallow the first reset.

use super::line::Line;
use bytes::BytesMut;
use parking_lot::Mutex;
use std::future::Future;
use std::io;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// Most that is read before the HTTP server asks for it. Behind more than that, an end cannot be seen.
const AHEAD: usize = 16 << 10;
const READ: usize = 4 << 10;

/// What is asked of a client that has ended its side.
const STILL_THERE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Ready when a reset has come.
pub(super) type Reset = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a connection runs over.
pub(super) trait Carrier: AsyncRead + AsyncWrite + Unpin + Send + 'static {
    /// The socket beneath it.
    fn socket(&self) -> &TcpStream;
}

impl Carrier for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Carrier for TlsStream<TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// Both ends of looking at one connection. Both are used by its one task, so the lock is never waited for.
pub(super) struct Tap<C>(Arc<Mutex<Inner<C>>>);

struct Inner<C> {
    carrier: C,
    line: Arc<Line>,
    ahead: BytesMut,
    ended: bool,
}

/// What reading ahead came upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// Bytes, which the HTTP server may be waiting for.
    Bytes,
    /// The client's end of its side.
    Ended,
    /// A connection that does not exist any more.
    Broken,
}

impl<C: Carrier> Tap<C> {
    pub(super) fn new(carrier: C, line: Arc<Line>) -> Self {
        let inner = Inner { carrier, line, ahead: BytesMut::new(), ended: false };
        Tap(Arc::new(Mutex::new(inner)))
    }

    /// The other end.
    pub(super) fn other(&self) -> Self {
        Tap(Arc::clone(&self.0))
    }

    /// Reads on, up to a bound, for the HTTP server to have later.
    pub(super) fn poll_ahead(&self, cx: &mut Context<'_>) -> Poll<Ahead> {
        let inner = &mut *self.0.lock();
        if inner.ended {
            return Poll::Ready(Ahead::Ended);
        }
        if inner.ahead.len() >= AHEAD {
            return Poll::Pending;
        }
        let mut room = [0; READ];
        let mut read = ReadBuf::new(&mut room);
        if ready!(Pin::new(&mut inner.carrier).poll_read(cx, &mut read)).is_err() {
            return Poll::Ready(Ahead::Broken);
        }
        if read.filled().is_empty() {
            inner.ended = true;
            return Poll::Ready(Ahead::Ended);
        }
        inner.ahead.extend_from_slice(read.filled());
        Poll::Ready(Ahead::Bytes)
    }

    /// Asks a client that has ended its side whether it is there. Nothing of an answer may wait to go out: this
    /// would stand in the middle of it.
    pub(super) fn ask(&self, cx: &mut Context<'_>) -> io::Result<()> {
        let inner = &mut *self.0.lock();
        match Pin::new(&mut inner.carrier).poll_write(cx, STILL_THERE) {
            Poll::Ready(Ok(written)) if written == STILL_THERE.len() => {
                // Over TLS, what is not flushed now is flushed with the answer.
                let _ = Pin::new(&mut inner.carrier).poll_flush(cx);
                Ok(())
            }
            // A client that does not read what it was sent is asked another time.
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(_)) => Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Waits for a reset. Reads do not tell of one after the end of the client's side, so the socket is watched
    /// under a second number.
    pub(super) fn reset(&self) -> io::Result<Reset> {
        let socket = self.0.lock().carrier.socket().as_fd().try_clone_to_owned()?;
        let watched = TcpStream::from_std(socket.into())?;
        Ok(Box::pin(async move {
            let _ = watched.ready(Interest::ERROR).await;
        }))
    }
}

impl<C: Carrier> AsyncRead for Tap<C> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let inner = &mut *self.0.lock();
        if !inner.ahead.is_empty() {
            let length = inner.ahead.len().min(buffer.remaining());
            buffer.put_slice(&inner.ahead.split_to(length));
            inner.line.hears();
            return Poll::Ready(Ok(()));
        }
        if inner.ended || buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut inner.carrier).poll_read(cx, buffer))?;
        if buffer.filled().len() == before {
            inner.ended = true;
        } else {
            inner.line.hears();
        }
        Poll::Ready(Ok(()))
    }
}

impl<C: Carrier> AsyncWrite for Tap<C> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let inner = &mut *self.0.lock();
        let written = Pin::new(&mut inner.carrier).poll_write(cx, bytes);
        inner.line.says(written.is_ready());
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let inner = &mut *self.0.lock();
        let written = Pin::new(&mut inner.carrier).poll_write_vectored(cx, slices);
        inner.line.says(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().carrier.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let inner = &mut *self.0.lock();
        ready!(Pin::new(&mut inner.carrier).poll_flush(cx))?;
        // The HTTP server asks for this when it has written all that it had.
        inner.line.has_said();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().carrier).poll_shutdown(cx)
    }
}
