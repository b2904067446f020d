//! What readers of a client have done so far, counted where it happens.

use std::sync::atomic::AtomicU64;

/// The counts behind [`super::ReaderStats`].
#[derive(Default)]
pub(super) struct Counts {
    pub(super) served_bytes: AtomicU64,
    pub(super) fetched_bytes: AtomicU64,
    pub(super) wasted_bytes: AtomicU64,
    pub(super) hits: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) random: AtomicU64,
    pub(super) whole: AtomicU64,
    pub(super) lanes: AtomicU64,
    pub(super) held_bytes: AtomicU64,
}
