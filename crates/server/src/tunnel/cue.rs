//! What a body tells the socket of its connection: hyper knows no way to end one in the middle of an answer.

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

/// What is to become of a connection when all that was written has gone out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Act {
    GoOn,
    /// Nothing is sent for a while: notice when the client goes away meanwhile.
    Watch,
    Reset,
    Close,
}

/// One for each connection in the tunnel: its bodies give it, its socket takes it.
#[derive(Debug, Default)]
pub(crate) struct Cue(AtomicU8);

impl Cue {
    pub(super) fn give(&self, act: Act) {
        self.0.store(act as u8, Ordering::Relaxed);
    }

    fn act(&self) -> Act {
        let given = self.0.load(Ordering::Relaxed);
        let acts = [Act::Watch, Act::Reset, Act::Close];
        acts.into_iter().find(|act| *act as u8 == given).unwrap_or(Act::GoOn)
    }
}

/// The socket's side of a cue.
pub(crate) struct Ending {
    cue: Arc<Cue>,
    /// When a reset is due.
    reset: Option<Instant>,
    alarm: Alarm,
}

impl Ending {
    pub(crate) fn new(cue: Arc<Cue>) -> Ending {
        Ending { cue, reset: None, alarm: Alarm::default() }
    }

    /// What the socket does when it has flushed: an error ends the connection.
    pub(crate) fn poll(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.cue.act() {
            Act::GoOn => Poll::Ready(Ok(())),
            Act::Watch => poll_watch(stream, cx),
            Act::Reset => {
                ready!(self.alarm.poll(*self.reset.get_or_insert_with(|| Instant::now() + PAUSE), cx));
                // Closing a socket that does not linger sends RST.
                socket2::SockRef::from(stream.tcp()).set_linger(Some(Duration::ZERO))?;
                Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
            }
            Act::Close => {
                ready!(stream.poll_shutdown(cx))?;
                Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
            }
        }
    }
}

/// An error when the client has gone; nobody else reads while an answer is sent.
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
