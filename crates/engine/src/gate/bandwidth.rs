//! `--bandwidth`: one bucket of bytes for all that a client receives and sends.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::base::time::now;
use flatout_policy::pace::bucket::Bucket;
use flatout_policy::receive_size::RECEIVE_BYTES;

/// Pieces of a twentieth of a second, so that nobody takes another's share for long; under a page they cost
/// more than they carry.
const PIECES_A_SECOND: u64 = 20;
const PIECE_BYTES_LEAST: u64 = 4 << 10;

pub(crate) struct Bandwidth {
    bucket: Mutex<Bucket>,
    piece_bytes: u64,
}

impl Bandwidth {
    /// `rate`: bytes a second.
    pub(crate) fn new(rate: u64) -> Bandwidth {
        let piece_bytes = (rate / PIECES_A_SECOND).clamp(PIECE_BYTES_LEAST, RECEIVE_BYTES as u64);
        Bandwidth { bucket: Mutex::new(Bucket::new(rate as f64, now())), piece_bytes }
    }

    /// How much to receive at once.
    pub(crate) fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// So much has been received: how long to wait before more is.
    pub(crate) fn spend(&self, bytes: u64) -> Duration {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner).spend(bytes as f64, now())
    }
}
