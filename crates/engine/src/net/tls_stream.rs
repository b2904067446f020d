//! A TLS connection after its handshake. Its records are ours (docs/decisions/tls-records.md): what comes is
//! received into a scratch that all connections of a thread share, and opened into the caller's buffer; what
//! goes is sealed into the same scratch.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::{AlertDescription, Error as TlsError, ExtractedSecrets, ProtocolVersion, SupportedCipherSuite};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::memory::plan::TLS_SCRATCH_BYTES;
use crate::net::tls_incoming::{Incoming, OnSaid, Said, alert_for};
use crate::net::tls_records::{
    ALERT, APPLICATION_DATA, HANDSHAKE, Opener, SEALING_BYTES_MAX, Sealer, TEXT_BYTES_MAX,
};

/// What one write seals: two records. More was no faster, and what the socket has no room for is kept.
pub(super) const AHEAD_BYTES: usize = 32 << 10;
/// One says so, and takes its next key (RFC 8446 §4.6.3).
const NEXT_KEY: [u8; 5] = [24, 0, 0, 1, 0];
/// An alert, or that message, sealed.
const SHORT_RECORD_BYTES: usize = NEXT_KEY.len() + SEALING_BYTES_MAX;

thread_local! {
    /// Sealed records lie here. It stays in the core's second-level cache, so one serves all connections of a
    /// thread. 292 KiB were no faster, 64 KiB slower.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; TLS_SCRATCH_BYTES].into_boxed_slice());
}

/// A TLS connection after its handshake.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    /// Keeps tickets, and knows the next keys.
    session: KernelConnection<ClientConnectionData>,
    incoming: Incoming,
    outgoing: Outgoing,
    /// What the socket refused with behind bytes that had to go first: it says so once.
    refused: Option<io::Error>,
    /// Why nothing more is read or written.
    broken: Option<TlsError>,
    /// TCP has ended before TLS did.
    is_cut: bool,
}

struct Outgoing {
    sealer: Sealer,
    /// Sealed, and for what the socket had no room.
    unsent: Vec<u8>,
    sent: usize,
    /// The other side has a new key, and wants us to have one.
    must_renew: bool,
    is_closed: bool,
}

impl TlsStream {
    /// Takes over where the handshake has ended: neither side has said anything since.
    pub(super) fn new(
        tcp: TcpStream,
        session: KernelConnection<ClientConnectionData>,
        secrets: ExtractedSecrets,
    ) -> Result<TlsStream, TlsError> {
        let version = session.protocol_version();
        let records_max = records_max(session.negotiated_cipher_suite());
        let incoming = Incoming::new(Opener::new(version, secrets.rx)?);
        let sealer = Sealer::new(version, secrets.tx, records_max)?;
        let outgoing = Outgoing { sealer, unsent: Vec::new(), sent: 0, must_renew: false, is_closed: false };
        Ok(TlsStream { tcp, session, incoming, outgoing, refused: None, broken: None, is_cut: false })
    }

    /// The socket underneath, for its options.
    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Received bytes that no caller has taken.
    pub(crate) fn untaken_bytes(&self) -> usize {
        self.incoming.untaken_bytes()
    }

    /// The other side has ended, or nothing more can be said.
    pub(crate) fn is_over(&self) -> bool {
        self.incoming.is_closed() || self.is_cut || self.broken.is_some() || self.refused.is_some()
    }

    /// Version and cipher suite, in words: `TLS 1.3`, `TLS13_AES_128_GCM_SHA256`.
    pub(crate) fn agreed(&self) -> (String, String) {
        let version = match self.session.protocol_version() {
            ProtocolVersion::TLSv1_3 => "TLS 1.3".to_owned(),
            ProtocolVersion::TLSv1_2 => "TLS 1.2".to_owned(),
            other => format!("{other:?}"),
        };
        (version, format!("{:?}", self.session.negotiated_cipher_suite().suite()))
    }

    /// Waits until what was sealed has been sent and the socket takes more.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        self.tcp.poll_write_ready(cx)
    }

    /// Sends what is sealed, and what the other side has asked for.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.outgoing.sent < self.outgoing.unsent.len() {
                let rest = &self.outgoing.unsent[self.outgoing.sent..];
                self.outgoing.sent += ready!(poll_write(&mut self.tcp, cx, rest))?;
            }
            (self.outgoing.sent, self.outgoing.unsent) = (0, Vec::new());
            if !std::mem::take(&mut self.outgoing.must_renew) || self.broken.is_some() {
                return Poll::Ready(Ok(()));
            }
            if let Err(why) = self.renew() {
                return Poll::Ready(Err(self.fail(why)));
            }
        }
    }

    /// Says that our next record has our next key, and takes it.
    fn renew(&mut self) -> Result<(), TlsError> {
        self.outgoing.say(HANDSHAKE, &NEXT_KEY)?;
        let records_max = records_max(self.session.negotiated_cipher_suite());
        let next = self.session.update_tx_secret()?;
        self.outgoing.sealer = Sealer::new(self.session.protocol_version(), next, records_max)?;
        Ok(())
    }

    /// Nothing is read or written from here on; the other side learns why, unless it has said so itself.
    fn fail(&mut self, why: TlsError) -> io::Error {
        if let Some(alert) = alert_for(&why) {
            // Where no key is left to say so with, it is not said.
            let _ = self.outgoing.say(ALERT, &[FATAL, alert.into()]);
        }
        self.broken = Some(why.clone());
        broken(why)
    }

    /// Hands out what was received before, and where there is room for more, receives once.
    fn poll_open(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let TlsStream { tcp, session, incoming, outgoing, .. } = self;
        let on_said: &mut OnSaid<'_> = &mut |said| match said {
            Said::Ticket(ticket) => session.handle_new_session_ticket(ticket).map(|()| None),
            Said::NextKey { wants_ours } => {
                outgoing.must_renew |= wants_ours;
                let next = session.update_rx_secret()?;
                Opener::new(session.protocol_version(), next).map(Some)
            }
        };
        let opened = match incoming.open_held(buf, on_said) {
            Ok(()) if buf.remaining() == 0 || incoming.is_closed() || self.is_cut => {
                return Poll::Ready(Ok(()));
            }
            Ok(()) => SCRATCH.with_borrow_mut(|scratch| -> Poll<io::Result<Result<(), TlsError>>> {
                let room = incoming.room(buf.remaining(), scratch.len());
                let start = room.start;
                let mut receive = ReadBuf::new(&mut scratch[room]);
                ready!(Pin::new(tcp).poll_read(cx, &mut receive))?;
                let received = receive.filled().len();
                self.is_cut = received == 0;
                Poll::Ready(Ok(incoming.open_received(scratch, start + received, buf, on_said)))
            }),
            refused => Poll::Ready(Ok(refused)),
        };
        match ready!(opened)? {
            Ok(()) => Poll::Ready(Ok(())),
            Err(why) => Poll::Ready(Err(self.fail(why))),
        }
    }
}

impl AsyncRead for TlsStream {
    /// Fills `buf` as far as what has arrived goes; waits only when nothing at all is there.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        if let Some(refused) = this.refused.take() {
            return Poll::Ready(Err(refused));
        }
        if let Some(why) = &this.broken {
            return Poll::Ready(Err(broken(why.clone())));
        }
        let mut outcome = Poll::Ready(Ok(()));
        while buf.remaining() > 0 && !this.incoming.is_closed() {
            outcome = this.poll_open(cx, buf);
            if this.is_cut || !matches!(outcome, Poll::Ready(Ok(()))) {
                break;
            }
        }
        // What arrived may want an answer (a new key, an alert): it leaves when it can.
        if this.outgoing.must_renew || !this.outgoing.unsent.is_empty() {
            let _ = this.poll_send(cx);
        }
        match outcome {
            // What has been opened goes first.
            Poll::Ready(Err(refused)) if buf.filled().len() > before => this.refused = Some(refused),
            Poll::Pending if buf.filled().len() > before => {}
            Poll::Ready(Ok(())) if this.is_cut && buf.filled().len() == before && buf.remaining() > 0 => {
                return Poll::Ready(Err(cut_off()));
            }
            other => return other,
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // Sealed only when the records before it have left: what is sealed and unsent stays small.
        ready!(this.poll_room(cx))?;
        if let Some(why) = &this.broken {
            return Poll::Ready(Err(broken(why.clone())));
        }
        let text = &buf[..buf.len().min(AHEAD_BYTES)];
        if this.outgoing.sealer.is_spent_after(SPARE_RECORDS) && this.outgoing.sealer.is_13() {
            if let Err(why) = this.renew() {
                let why = this.fail(why);
                // The alert, if there is room for it.
                let _ = this.poll_send(cx);
                return Poll::Ready(Err(why));
            }
            ready!(this.poll_send(cx))?;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let sealed = match this.outgoing.seal(text, scratch) {
                Ok(sealed) => sealed,
                Err(why) => return Poll::Ready(Err(this.fail(why))),
            };
            let sent = match poll_write(&mut this.tcp, cx, &scratch[..sealed]) {
                Poll::Ready(sent) => sent?,
                Poll::Pending => 0,
            };
            this.outgoing.unsent.extend_from_slice(&scratch[sent..sealed]);
            Poll::Ready(Ok(text.len()))
        })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.outgoing.is_closed, true) && this.broken.is_none() {
            // Where no key is left to say so with, it is not said.
            let _ = this.outgoing.say(ALERT, &[WARNING, AlertDescription::CloseNotify.into()]);
        }
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.tcp).poll_shutdown(cx)
    }
}

const WARNING: u8 = 1;
const FATAL: u8 = 2;

impl Outgoing {
    /// Seals `text` into `scratch`, record by record.
    fn seal(&mut self, text: &[u8], scratch: &mut [u8]) -> Result<usize, TlsError> {
        let mut sealed = 0;
        for text in text.chunks(TEXT_BYTES_MAX) {
            sealed += self.sealer.seal(APPLICATION_DATA, text, &mut scratch[sealed..])?;
        }
        Ok(sealed)
    }

    /// Puts a short record behind what is unsent.
    fn say(&mut self, kind: u8, text: &[u8]) -> Result<(), TlsError> {
        let mut record = [0; SHORT_RECORD_BYTES];
        let bytes = self.sealer.seal(kind, text, &mut record)?;
        self.unsent.extend_from_slice(&record[..bytes]);
        Ok(())
    }
}

/// Of what one key may seal, kept for a write, and for an alert or the word of a new key.
const SPARE_RECORDS: u64 = (AHEAD_BYTES / TEXT_BYTES_MAX) as u64 + 2;

fn records_max(suite: SupportedCipherSuite) -> u64 {
    match suite {
        SupportedCipherSuite::Tls13(suite) => suite.common.confidentiality_limit,
        SupportedCipherSuite::Tls12(suite) => suite.common.confidentiality_limit,
    }
}

/// A write that sends nothing has no end.
fn poll_write(tcp: &mut TcpStream, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
    // By writev(2), as plain bodies leave: /proc/PID/io counts that, and not send(2).
    match ready!(Pin::new(tcp).poll_write_vectored(cx, &[IoSlice::new(bytes)]))? {
        0 if !bytes.is_empty() => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        sent => Poll::Ready(Ok(sent)),
    }
}

fn broken(why: TlsError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// TCP ended and TLS did not: who did that is not known, so the end of a body cannot be told by it.
fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed without the end of TLS, and may be cut off")
}

#[cfg(test)]
#[path = "tls_stream_tests.rs"]
mod tests;
