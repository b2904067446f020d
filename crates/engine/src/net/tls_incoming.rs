//! What comes in over TLS: bytes as they were received to text in the caller's buffer. No sockets: what the
//! other side says besides text goes to whoever has the handshake's keys. Every byte may be an attacker's.

use rustls::{AlertDescription, Error as TlsError, HandshakeType, InvalidMessage, PeerMisbehaved};
use tokio::io::ReadBuf;

use crate::net::tls_records::{
    ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, Opener, RECORD_BYTES_MAX,
};

/// Records so short may say other things than text: they are opened beside the caller's buffer, of which only
/// text shall be written.
const SHORT_BYTES: usize = 1 << 10;
/// A message of a handshake; only tickets are longer than 5 bytes.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// As rustls and BoringSSL bound them. They cost us work and bring nothing.
const EMPTY_MAX: u32 = 32;
const WARNINGS_MAX: u32 = 4;
const KEY_UPDATES_MAX: u32 = 32;

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// What the other side says besides text.
pub enum Said<'a> {
    /// Resumes this session, later.
    Ticket(&'a [u8]),
    /// Its next record has the next key; it may want us to take our next, too.
    NextKey { wants_ours: bool },
}

/// Opens the records of one connection.
pub struct Incoming {
    opener: Opener,
    /// Received and not opened: a record that is not whole, or those for which the caller had no room.
    held: Vec<u8>,
    /// Of a record that the caller had less room for: its text, and how much of that was taken.
    text: Vec<u8>,
    taken: usize,
    /// The start of a message of a handshake.
    message: Vec<u8>,
    is_closed: bool,
    /// In a row.
    empty: u32,
    key_updates: u32,
    /// In all.
    warnings: u32,
}

/// Acts on a message of the other side; for a new key it returns what opens with it.
pub type OnSaid<'a> = dyn FnMut(Said<'_>) -> Result<Option<Opener>, TlsError> + 'a;

impl Incoming {
    #[must_use]
    pub fn new(opener: Opener) -> Incoming {
        Incoming {
            opener,
            held: Vec::new(),
            text: Vec::new(),
            taken: 0,
            message: Vec::new(),
            is_closed: false,
            empty: 0,
            key_updates: 0,
            warnings: 0,
        }
    }

    /// Whether the other side has said that nothing more will come. What comes is ignored.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Received, and not taken by the caller: text, and the beginning of a record.
    pub(super) fn untaken_bytes(&self) -> usize {
        self.text.len() - self.taken + self.held.len()
    }

    /// Where in a scratch of `most` bytes to receive for a caller with room for `wanted`: behind what is
    /// held, and no more than leaves a record's length to be held.
    pub(super) fn room(&self, wanted: usize, most: usize) -> std::ops::Range<usize> {
        self.held.len()..most.min(wanted.saturating_add(RECORD_BYTES_MAX)).max(self.held.len())
    }

    /// Hands out what was received before.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_held(&mut self, buf: &mut ReadBuf<'_>, on_said: &mut OnSaid<'_>) -> Result<(), TlsError> {
        self.take_text(buf);
        if self.held.is_empty() {
            return Ok(());
        }
        let mut held = std::mem::take(&mut self.held);
        let used = self.open(&held, buf, on_said)?;
        held.drain(..used);
        self.held = held;
        Ok(())
    }

    /// Opens what was received into `room` of `scratch`, which ends at `end`.
    ///
    /// # Errors
    /// As `open`.
    pub(super) fn open_received(
        &mut self,
        scratch: &mut [u8],
        end: usize,
        buf: &mut ReadBuf<'_>,
        on_said: &mut OnSaid<'_>,
    ) -> Result<(), TlsError> {
        scratch[..self.held.len()].copy_from_slice(&self.held);
        self.held.clear();
        let used = self.open(&scratch[..end], buf, on_said)?;
        self.held.extend_from_slice(&scratch[used..end]);
        Ok(())
    }

    /// Takes `bytes` in behind what is held, for a caller that has them already.
    ///
    /// # Errors
    /// As `open`.
    pub fn push(
        &mut self,
        bytes: &[u8],
        buf: &mut ReadBuf<'_>,
        on_said: &mut OnSaid<'_>,
    ) -> Result<(), TlsError> {
        self.held.extend_from_slice(bytes);
        self.open_held(buf, on_said)
    }

    /// Opens whole records at the start of `bytes` while there is room in `buf`; how many bytes they had.
    /// Nothing may be called after an error.
    fn open(
        &mut self,
        bytes: &[u8],
        buf: &mut ReadBuf<'_>,
        on_said: &mut OnSaid<'_>,
    ) -> Result<usize, TlsError> {
        let mut used = 0;
        while buf.remaining() > 0 && !self.is_closed {
            let rest = &bytes[used..];
            let Some(record_bytes) = self.opener.whole(rest)? else { return Ok(used) };
            self.open_record(&rest[..record_bytes], buf, on_said)?;
            used += record_bytes;
        }
        Ok(if self.is_closed { bytes.len() } else { used })
    }

    fn open_record(
        &mut self,
        record: &[u8],
        buf: &mut ReadBuf<'_>,
        on_said: &mut OnSaid<'_>,
    ) -> Result<(), TlsError> {
        let opened_bytes = self.opener.opened_bytes(record);
        if opened_bytes > SHORT_BYTES && opened_bytes <= buf.remaining() {
            let onto = buf.initialize_unfilled_to(opened_bytes);
            let (kind, text_bytes) = self.opener.open(record, onto)?;
            if kind == APPLICATION_DATA {
                self.on_text(text_bytes)?;
                buf.advance(text_bytes);
                return Ok(());
            }
            let said = onto[..text_bytes].to_vec();
            return self.on_other(kind, &said, on_said);
        }
        self.text.resize(opened_bytes, 0);
        let (kind, text_bytes) = self.opener.open(record, &mut self.text)?;
        self.text.truncate(text_bytes);
        if kind == APPLICATION_DATA {
            self.on_text(text_bytes)?;
            self.take_text(buf);
            return Ok(());
        }
        let said = std::mem::take(&mut self.text);
        self.on_other(kind, &said, on_said)
    }

    fn take_text(&mut self, buf: &mut ReadBuf<'_>) {
        let rest = &self.text[self.taken..];
        let bytes = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..bytes]);
        self.taken += bytes;
        if self.taken == self.text.len() {
            self.taken = 0;
            match self.text.capacity() > SHORT_BYTES {
                true => self.text = Vec::new(),
                false => self.text.clear(),
            }
        }
    }

    fn on_text(&mut self, text_bytes: usize) -> Result<(), TlsError> {
        self.is_apart()?;
        if text_bytes > 0 {
            (self.empty, self.key_updates) = (0, 0);
            return Ok(());
        }
        self.empty += 1;
        if self.empty > EMPTY_MAX { Err(PeerMisbehaved::TooManyEmptyFragments.into()) } else { Ok(()) }
    }

    /// Nothing comes between two records of one message.
    fn is_apart(&self) -> Result<(), TlsError> {
        match self.message.is_empty() {
            true => Ok(()),
            false => Err(PeerMisbehaved::MessageInterleavedWithHandshakeMessage.into()),
        }
    }

    fn on_other(&mut self, kind: u8, said: &[u8], on_said: &mut OnSaid<'_>) -> Result<(), TlsError> {
        match kind {
            ALERT => {
                self.is_apart()?;
                self.on_alert(said)
            }
            // TLS 1.2 may ask for another handshake here, which nobody should want any more.
            HANDSHAKE if !self.opener.is_13() => match said {
                [0, 0, 0, 0] => Err(PeerMisbehaved::TooManyRenegotiationRequests.into()),
                _ => Err(unexpected(said.first().copied().unwrap_or_default())),
            },
            HANDSHAKE if said.is_empty() => Err(InvalidMessage::InvalidEmptyPayload.into()),
            HANDSHAKE => self.on_messages(said, on_said),
            CHANGE_CIPHER_SPEC => Err(PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into()),
            _ => Err(InvalidMessage::InvalidContentType.into()),
        }
    }

    fn on_alert(&mut self, said: &[u8]) -> Result<(), TlsError> {
        const WARNING: u8 = 1;
        const FATAL: u8 = 2;
        let &[level, description] = said else {
            return Err(match said.len() {
                0 | 1 => InvalidMessage::MissingData("AlertMessagePayload").into(),
                _ => InvalidMessage::TrailingData("AlertMessagePayload").into(),
            });
        };
        let description = AlertDescription::from(description);
        match (level, description) {
            (WARNING | FATAL, AlertDescription::CloseNotify) => {
                self.is_closed = true;
                Ok(())
            }
            // TLS 1.3 has no warnings but this one, which says nothing.
            (WARNING, AlertDescription::UserCanceled) => self.on_warning(),
            (WARNING, _) if !self.opener.is_13() => self.on_warning(),
            _ => Err(TlsError::AlertReceived(description)),
        }
    }

    fn on_warning(&mut self) -> Result<(), TlsError> {
        self.warnings += 1;
        match self.warnings > WARNINGS_MAX {
            true => Err(PeerMisbehaved::TooManyWarningAlertsReceived.into()),
            false => Ok(()),
        }
    }

    /// Messages of a handshake that has ended: tickets, which may be cut into records, and new keys, which
    /// stand at the end of a record and in one (RFC 8446 §5.1).
    fn on_messages(&mut self, said: &[u8], on_said: &mut OnSaid<'_>) -> Result<(), TlsError> {
        let mut begun = self.message.len();
        let mut messages = std::mem::take(&mut self.message);
        messages.extend_from_slice(said);
        let mut rest = &messages[..];
        while let [kind, behind @ ..] = rest {
            if ![NEW_SESSION_TICKET, KEY_UPDATE].contains(kind) {
                return Err(unexpected(*kind));
            }
            let is_key_update = *kind == KEY_UPDATE;
            let length = behind
                .first_chunk()
                .map(|[high, middle, low]| u32::from_be_bytes([0, *high, *middle, *low]) as usize);
            if length.is_some_and(|bytes| bytes > MESSAGE_BYTES_MAX) {
                return Err(InvalidMessage::HandshakePayloadTooLarge.into());
            }
            let body = length.and_then(|bytes| behind[3..].split_at_checked(bytes));
            match body {
                Some((body, after)) if is_key_update => {
                    if begun > 0 || !after.is_empty() {
                        return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into());
                    }
                    return self.on_key_update(body, on_said);
                }
                Some((body, after)) => {
                    on_said(Said::Ticket(body))?;
                    (rest, begun) = (after, 0);
                }
                None if is_key_update => return Err(PeerMisbehaved::KeyEpochWithPendingFragment.into()),
                None => break,
            }
        }
        self.message = rest.to_vec();
        Ok(())
    }

    fn on_key_update(&mut self, body: &[u8], on_said: &mut OnSaid<'_>) -> Result<(), TlsError> {
        let wants_ours = match body {
            [0] => false,
            [1] => true,
            _ => return Err(InvalidMessage::InvalidKeyUpdate.into()),
        };
        self.key_updates += 1;
        if self.key_updates > KEY_UPDATES_MAX {
            return Err(PeerMisbehaved::TooManyKeyUpdateRequests.into());
        }
        if let Some(next) = on_said(Said::NextKey { wants_ours })? {
            self.opener = next;
        }
        Ok(())
    }
}

fn unexpected(got: u8) -> TlsError {
    TlsError::InappropriateHandshakeMessage {
        expect_types: vec![HandshakeType::NewSessionTicket, HandshakeType::KeyUpdate],
        got_type: HandshakeType::from(got),
    }
}

/// What to tell the other side of its fault; nothing where it has told us of ours.
pub(super) fn alert_for(fault: &TlsError) -> Option<AlertDescription> {
    use AlertDescription as Alert;
    Some(match fault {
        TlsError::AlertReceived(_) => return None,
        TlsError::DecryptError => Alert::BadRecordMac,
        TlsError::PeerSentOversizedRecord => Alert::RecordOverflow,
        TlsError::InvalidMessage(InvalidMessage::InvalidKeyUpdate) => Alert::IllegalParameter,
        TlsError::InvalidMessage(
            InvalidMessage::UnexpectedMessage(_) | InvalidMessage::InvalidContentType,
        ) => Alert::UnexpectedMessage,
        TlsError::InvalidMessage(InvalidMessage::UnknownProtocolVersion) => Alert::ProtocolVersion,
        TlsError::InvalidMessage(_) => Alert::DecodeError,
        TlsError::PeerMisbehaved(PeerMisbehaved::TooManyRenegotiationRequests) => Alert::NoRenegotiation,
        TlsError::PeerMisbehaved(_)
        | TlsError::InappropriateMessage { .. }
        | TlsError::InappropriateHandshakeMessage { .. } => Alert::UnexpectedMessage,
        _ => Alert::InternalError,
    })
}
