//! Signals from a body to the socket of its connection: hyper cannot end a connection in the middle of a
//! response.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::ReadBuf;

use crate::alarm::Alarm;
use crate::stream::Stream;

/// How long a client has to take what was sent before a reset, which makes the kernel forget it.
const PAUSE: Duration = Duration::from_millis(20);

/// The action on a connection once everything that was written has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ConnectionAction {
    GoOn,
    /// Nothing is sent for a while: notice when the client goes away meanwhile.
    Watch,
    Reset,
    Close,
}

/// One for each connection that may meet with faults: its bodies send it, its socket acts on it.
#[derive(Debug, Default)]
pub(crate) struct Signal(AtomicU8);

impl Signal {
    pub(super) fn send(&self, action: ConnectionAction) {
        self.0.store(action as u8, Ordering::Relaxed);
    }

    fn action(&self) -> ConnectionAction {
        let given = self.0.load(Ordering::Relaxed);
        let actions = [ConnectionAction::Watch, ConnectionAction::Reset, ConnectionAction::Close];
        actions.into_iter().find(|action| *action as u8 == given).unwrap_or(ConnectionAction::GoOn)
    }
}

/// The socket's side of a [`Signal`]: ends the connection when it says so.
pub(crate) struct Closer {
    signal: Arc<Signal>,
    /// When a reset is due.
    reset: Option<Instant>,
    alarm: Alarm,
}

impl Closer {
    pub(crate) fn new(signal: Arc<Signal>) -> Closer {
        Closer { signal, reset: None, alarm: Alarm::default() }
    }

    /// Called by the socket when it has flushed. An error ends the connection.
    pub(crate) fn poll(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.signal.action() {
            ConnectionAction::GoOn => Poll::Ready(Ok(())),
            ConnectionAction::Watch => poll_watch(stream, cx),
            ConnectionAction::Reset => {
                ready!(self.alarm.poll(*self.reset.get_or_insert_with(|| Instant::now() + PAUSE), cx));
                // Closing a socket that does not linger sends RST.
                socket2::SockRef::from(stream.tcp()).set_linger(Some(Duration::ZERO))?;
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            ConnectionAction::Close => {
                ready!(stream.poll_shutdown(cx))?;
                Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
            }
        }
    }
}

/// An error when the client has gone. Nothing else reads from the socket while a response is sent.
fn poll_watch(stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    let mut byte = [0];
    match stream.tcp().poll_peek(cx, &mut ReadBuf::new(&mut byte)) {
        Poll::Pending => Poll::Ready(Ok(())),
        // A client that speaks in the middle of an answer says goodbye, when it is over TLS.
        Poll::Ready(Ok(1..)) if !stream.is_tls() => Poll::Ready(Ok(())),
        Poll::Ready(Ok(_)) => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
        Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
    }
}
