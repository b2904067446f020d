//! One record of TLS, sealed or opened with keys that rustls's handshake agreed on. No sockets, no state but
//! keys and sequence numbers.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use rustls::{ConnectionTrafficSecrets, Error as TlsError, InvalidMessage, PeerMisbehaved, ProtocolVersion};

/// A record's header: type, version, length (RFC 8446 §5.1).
pub const HEADER_BYTES: usize = 5;
/// The most text in a record.
pub const TEXT_BYTES_MAX: usize = 16 << 10;
/// The longest record: 2^14 bytes of text, and what TLS 1.2 allows to be added.
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + TEXT_BYTES_MAX + 2_048;
/// What sealing adds at most: the header, TLS 1.2's nonce, the tag.
pub const SEALING_BYTES_MAX: usize = HEADER_BYTES + NONCE_BYTES + TAG_BYTES;

pub const CHANGE_CIPHER_SPEC: u8 = 20;
pub const ALERT: u8 = 21;
pub const HANDSHAKE: u8 = 22;
pub const APPLICATION_DATA: u8 = 23;

/// What TLS 1.3 allows to be added to a text, its type included.
const TLS13_ADDED_BYTES_MAX: usize = 256;
/// Of TLS 1.2 with AES-GCM: the half of the nonce that each record states.
const NONCE_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
/// No number comes twice under one key.
const NUMBER_MAX: u64 = u64::MAX - 1;

/// How a record is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// The type lies sealed behind the text, padding behind it (RFC 8446 §5.2).
    Tls13,
    /// Half of the nonce lies before the text (RFC 5288).
    Tls12Gcm,
    /// RFC 7905.
    Tls12ChaCha,
}

/// One direction's key, and the number of its next record.
struct Key {
    aead: LessSafeKey,
    iv: [u8; NONCE_LEN],
    form: Form,
    number: u64,
}

impl Key {
    fn new(version: ProtocolVersion, (number, secrets): Secrets) -> Result<Key, TlsError> {
        let is_13 = version == ProtocolVersion::TLSv1_3;
        let gcm = if is_13 { Form::Tls13 } else { Form::Tls12Gcm };
        let (algorithm, form, key, iv) = match &secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, gcm, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, gcm, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
                (&aead::CHACHA20_POLY1305, if is_13 { Form::Tls13 } else { Form::Tls12ChaCha }, key, iv)
            }
            _ => return Err(unusable()),
        };
        let aead = LessSafeKey::new(UnboundKey::new(algorithm, key.as_ref()).map_err(|_| unusable())?);
        let iv = iv.as_ref().try_into().map_err(|_| unusable())?;
        Ok(Key { aead, iv, form, number })
    }

    fn nonce_bytes(&self) -> usize {
        if self.form == Form::Tls12Gcm { NONCE_BYTES } else { 0 }
    }

    /// The initialisation vector XOR the record's number. TLS 1.2 leaves the nonce of AES-GCM to the sender;
    /// this one never repeats.
    fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, of_number) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.number.to_be_bytes()) {
            *byte ^= of_number;
        }
        nonce
    }

    /// What is sealed with a record of `header`, without being hidden.
    fn aad(&self, header: [u8; HEADER_BYTES], text_bytes: usize) -> Aad<AadBytes> {
        let mut bytes = AadBytes { bytes: [0; 13], start: 8 };
        bytes.bytes[8..].copy_from_slice(&header);
        if self.form != Form::Tls13 {
            bytes.start = 0;
            bytes.bytes[..8].copy_from_slice(&self.number.to_be_bytes());
            bytes.bytes[11..].copy_from_slice(&(text_bytes as u16).to_be_bytes());
        }
        Aad::from(bytes)
    }

    fn step(&mut self) -> Result<(), TlsError> {
        self.number = self.number.checked_add(1).filter(|next| *next <= NUMBER_MAX).ok_or_else(spent)?;
        Ok(())
    }
}

/// As rustls hands them out: the number of the next record, and its key.
pub type Secrets = (u64, ConnectionTrafficSecrets);

/// The header alone in TLS 1.3; in TLS 1.2 the record's number goes before it.
struct AadBytes {
    bytes: [u8; 13],
    start: usize,
}

impl AsRef<[u8]> for AadBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

/// Opens what the other side has sealed.
pub struct Opener(Key);

impl Opener {
    /// # Errors
    /// For a cipher that we do not offer.
    pub fn new(version: ProtocolVersion, secrets: Secrets) -> Result<Opener, TlsError> {
        Key::new(version, secrets).map(Opener)
    }

    pub(super) fn is_13(&self) -> bool {
        self.0.form == Form::Tls13
    }

    /// The length of the record that `bytes` begin with, where all of it is there.
    ///
    /// # Errors
    /// For a header that no record can have at this point.
    pub(super) fn whole(&self, bytes: &[u8]) -> Result<Option<usize>, TlsError> {
        match bytes.first() {
            None | Some(&APPLICATION_DATA) => {}
            Some(&(ALERT | HANDSHAKE)) if !self.is_13() => {}
            Some(&CHANGE_CIPHER_SPEC) => return Err(PeerMisbehaved::IllegalMiddleboxChangeCipherSpec.into()),
            Some(&(ALERT | HANDSHAKE)) => {
                return Err(InvalidMessage::UnexpectedMessage("it is not sealed").into());
            }
            Some(_) => return Err(InvalidMessage::InvalidContentType.into()),
        }
        if bytes.get(1..3).is_some_and(|version| version != [3, 3]) {
            return Err(InvalidMessage::UnknownProtocolVersion.into());
        }
        let Some(&[_, _, _, high, low]) = bytes.first_chunk() else { return Ok(None) };
        let body_bytes = usize::from(u16::from_be_bytes([high, low]));
        let longest = match self.is_13() {
            true => TEXT_BYTES_MAX + TLS13_ADDED_BYTES_MAX,
            false => RECORD_BYTES_MAX - HEADER_BYTES,
        };
        if body_bytes > longest {
            return Err(TlsError::PeerSentOversizedRecord);
        }
        if body_bytes < self.0.nonce_bytes() + usize::from(self.is_13()) + TAG_BYTES {
            return Err(TlsError::DecryptError);
        }
        Ok(Some(HEADER_BYTES + body_bytes).filter(|record_bytes| *record_bytes <= bytes.len()))
    }

    /// How much `open` writes of a record that is `whole`: its text, in TLS 1.3 also its type and padding.
    pub(super) fn opened_bytes(&self, record: &[u8]) -> usize {
        record.len().saturating_sub(HEADER_BYTES + self.0.nonce_bytes() + TAG_BYTES)
    }

    /// Opens a record that is `whole` into `onto`, which is `opened_bytes` long; type and length of its text,
    /// which lies at the start of `onto`.
    ///
    /// # Errors
    /// For a record that was not sealed so; then `onto` holds nothing of it.
    pub(super) fn open(&mut self, record: &[u8], onto: &mut [u8]) -> Result<(u8, usize), TlsError> {
        let key = &mut self.0;
        let nonce_bytes = key.nonce_bytes();
        let (Some(header), Some(sealed)) = (record.first_chunk(), record.get(HEADER_BYTES + nonce_bytes..))
        else {
            return Err(TlsError::DecryptError);
        };
        let (text, tag) = sealed.split_at_checked(onto.len()).ok_or(TlsError::DecryptError)?;
        let mut nonce = key.nonce();
        nonce[NONCE_LEN - nonce_bytes..].copy_from_slice(&record[HEADER_BYTES..HEADER_BYTES + nonce_bytes]);
        key.aead
            .open_separate_gather(
                Nonce::assume_unique_for_key(nonce),
                key.aad(*header, text.len()),
                text,
                tag,
                onto,
            )
            .map_err(|_| TlsError::DecryptError)?;
        key.step()?;
        let (kind, text_bytes) = match key.form {
            Form::Tls13 => {
                let end = onto.iter().rposition(|byte| *byte != 0);
                let end = end.ok_or(PeerMisbehaved::IllegalTlsInnerPlaintext)?;
                (onto[end], end)
            }
            _ => (header[0], onto.len()),
        };
        // Padding counts, too (RFC 8446 §5.4).
        let longest = TEXT_BYTES_MAX + usize::from(key.form == Form::Tls13);
        match text_bytes <= TEXT_BYTES_MAX && onto.len() <= longest {
            true => Ok((kind, text_bytes)),
            false => Err(TlsError::PeerSentOversizedRecord),
        }
    }
}

/// Seals what we send.
pub struct Sealer {
    key: Key,
    /// Records that one key may seal (RFC 8446 §5.5).
    number_max: u64,
}

impl Sealer {
    /// # Errors
    /// For a cipher that we do not offer.
    pub fn new(version: ProtocolVersion, secrets: Secrets, records_max: u64) -> Result<Sealer, TlsError> {
        Ok(Sealer { key: Key::new(version, secrets)?, number_max: records_max.min(NUMBER_MAX) })
    }

    pub(super) fn is_13(&self) -> bool {
        self.key.form == Form::Tls13
    }

    /// Whether the key would be spent after so many records more.
    pub(super) fn is_spent_after(&self, records: u64) -> bool {
        self.key.number.saturating_add(records) >= self.number_max
    }

    #[cfg(test)]
    pub(super) fn limit_to(&mut self, more: u64) {
        self.number_max = self.key.number + more;
    }

    #[cfg(test)]
    pub(super) fn number(&self) -> u64 {
        self.key.number
    }

    /// Seals up to [`TEXT_BYTES_MAX`] of text at the start of `onto`; the length of the record. `onto` has
    /// room for [`SEALING_BYTES_MAX`] more than the text.
    ///
    /// # Errors
    /// When the key has sealed as many records as it may.
    pub fn seal(&mut self, kind: u8, text: &[u8], onto: &mut [u8]) -> Result<usize, TlsError> {
        if self.key.number >= self.number_max {
            return Err(spent());
        }
        let key = &mut self.key;
        let nonce_bytes = key.nonce_bytes();
        let (outer, behind): (u8, &[u8]) = match key.form {
            Form::Tls13 => (APPLICATION_DATA, &[kind]),
            _ => (kind, &[]),
        };
        let body_bytes = nonce_bytes + text.len() + behind.len() + TAG_BYTES;
        let [high, low] = (body_bytes as u16).to_be_bytes();
        let header = [outer, 3, 3, high, low];
        let nonce = key.nonce();
        let (record, _) =
            onto.split_at_mut_checked(HEADER_BYTES + body_bytes).ok_or(TlsError::EncryptError)?;
        record[..HEADER_BYTES].copy_from_slice(&header);
        let (stated, sealed) = record[HEADER_BYTES..].split_at_mut(nonce_bytes);
        stated.copy_from_slice(&nonce[NONCE_LEN - nonce_bytes..]);
        let (onto, tag) = sealed.split_at_mut(text.len());
        let aad = key.aad(header, text.len());
        key.aead
            .seal_out_of_place_scatter(Nonce::assume_unique_for_key(nonce), aad, text, onto, behind, tag)
            .map_err(|_| TlsError::EncryptError)?;
        key.step()?;
        Ok(HEADER_BYTES + body_bytes)
    }
}

fn unusable() -> TlsError {
    TlsError::General("keys of a cipher that was not offered".into())
}

fn spent() -> TlsError {
    TlsError::General("as many records were sealed with one key as may be".into())
}
