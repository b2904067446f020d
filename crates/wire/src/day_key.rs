//! Keys of a day: the four HMACs between a secret and the key that signs, in the scheme that Amazon made and
//! Alibaba Cloud took over with other words.

use std::sync::{Arc, Mutex, PoisonError};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::time::format_amz;

const DAY_S: u64 = 86_400;

pub(crate) type HmacSha256 = Hmac<Sha256>;

/// The words in which the two signatures of this scheme differ.
#[derive(Debug)]
pub(crate) struct SigningWords {
    pub(crate) algorithm: &'static str,
    /// Stands before the secret.
    seed: &'static str,
    /// Ends the scope.
    ending: &'static str,
}

pub(crate) const AWS4: SigningWords =
    SigningWords { algorithm: "AWS4-HMAC-SHA256", seed: "AWS4", ending: "aws4_request" };
pub(crate) const OSS4: SigningWords =
    SigningWords { algorithm: "OSS4-HMAC-SHA256", seed: "aliyun_v4", ending: "aliyun_v4_request" };

/// Makes the key of a day and keeps it. May be used by several threads at once: a lock is held for as long as
/// it takes to copy a pointer.
pub(crate) struct DayKeys {
    words: &'static SigningWords,
    secret_key: String,
    region: String,
    service: String,
    kept: Mutex<Option<Arc<DayKey>>>,
}

/// The signing key of one day, with the padding of its HMAC already hashed.
pub(crate) struct DayKey {
    /// Days since 1970.
    day: u64,
    key: HmacSha256,
    algorithm: &'static str,
    /// `20130524/us-east-1/s3/aws4_request`
    pub(crate) scope: String,
}

impl DayKeys {
    pub(crate) fn new(
        words: &'static SigningWords,
        secret_key: &str,
        region: &str,
        service: &str,
    ) -> DayKeys {
        DayKeys {
            words,
            secret_key: secret_key.into(),
            region: region.into(),
            service: service.into(),
            kept: Mutex::new(None),
        }
    }

    pub(crate) fn region(&self) -> &str {
        &self.region
    }

    /// The key of the day in which that second lies.
    pub(crate) fn at(&self, unix_s: u64) -> Arc<DayKey> {
        let day = unix_s / DAY_S;
        // What a panic elsewhere left behind is still a whole key.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(key) if key.day == day => Arc::clone(key),
            _ => Arc::clone(kept.insert(Arc::new(self.derive(day)))),
        }
    }

    fn derive(&self, day: u64) -> DayKey {
        let SigningWords { algorithm, seed, ending } = self.words;
        let date = &format_amz(day * DAY_S)[..8];
        let seed = hmac_key(format!("{seed}{}", self.secret_key).as_bytes());
        let key = [date, &self.region, &self.service, ending]
            .iter()
            .fold(seed, |key, word| hmac_key(&hmac(&key, word)));
        DayKey { day, key, algorithm, scope: format!("{date}/{}/{}/{ending}", self.region, self.service) }
    }
}

impl DayKey {
    /// The signature, in hex, of a request that was made at `date` and whose canonical form has that hash.
    pub(crate) fn signature(&self, date: &str, canonical_hash: &str) -> String {
        hex(&hmac(&self.key, &format!("{}\n{date}\n{}\n{canonical_hash}", self.algorithm, self.scope)))
    }
}

pub(crate) fn hmac_key(key: &[u8]) -> HmacSha256 {
    HmacSha256::new_from_slice(key).expect("HMAC takes keys of any length")
}

pub(crate) fn hmac(key: &HmacSha256, message: &str) -> [u8; 32] {
    let mut mac = key.clone();
    mac.update(message.as_bytes());
    mac.finalize().into_bytes().into()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
    text
}
