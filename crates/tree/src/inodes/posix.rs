//! What is known of the metadata of names: kept as long as the object is the same.

use std::collections::HashMap;
use std::sync::Arc;

use crate::etag::Etag;
use crate::fact::Fact;
use crate::hash::BuildIdentityHasher;
use crate::posix::Posix;

const LEAST_MS: u64 = 1_000;
/// How far the origin's clock may be behind this machine's.
const CLOCKS_APART_S: i64 = 2;
/// What one takes, beside what it holds.
const BYTES: u64 = 200;

/// By node.
#[derive(Debug, Default)]
pub(crate) struct KnownPosix(HashMap<u64, Known, BuildIdentityHasher>);

#[derive(Debug)]
struct Known {
    posix: Arc<Posix>,
    /// Of the version that it is of. Of a file, metadata alone may change, with the time and not the ETag.
    etag: Etag,
    modified_s: u32,
    asked_ms: u64,
    /// It was asked for when that second was over: another client that changes the metadata later gives the
    /// object another time.
    is_settled: bool,
}

impl KnownPosix {
    /// Of the version that `fact` tells of; `None` also where it has to be asked for again.
    pub(crate) fn get(
        &self,
        ino: u64,
        is_folder: bool,
        fact: &Fact,
        now_ms: u64,
        lifetime_ms: u64,
    ) -> Option<&Arc<Posix>> {
        let known = self.0.get(&ino)?;
        // Long enough for the answer to the question that it was asked for.
        let is_young = now_ms.saturating_sub(known.asked_ms) < lifetime_ms.max(LEAST_MS);
        let is_safe = is_young || (!is_folder && known.etag != Etag::None && known.is_settled);
        self.last(ino, is_folder, fact).filter(|_| is_safe)
    }

    /// However old it is.
    pub(crate) fn last(&self, ino: u64, is_folder: bool, fact: &Fact) -> Option<&Arc<Posix>> {
        let known = self.0.get(&ino)?;
        let is_same = is_folder || (known.etag == fact.etag && known.modified_s == fact.modified_s);
        is_same.then_some(&known.posix)
    }

    /// It is of the version that `fact` tells of, and was asked for at `asked_s` since 1970.
    pub(crate) fn set(&mut self, ino: u64, posix: Arc<Posix>, fact: &Fact, asked_ms: u64, asked_s: i64) {
        let is_settled = asked_s > i64::from(fact.modified_s) + CLOCKS_APART_S;
        let (etag, modified_s) = (fact.etag.clone(), fact.modified_s);
        self.0.insert(ino, Known { posix, etag, modified_s, asked_ms, is_settled });
    }

    pub(crate) fn forget(&mut self, ino: u64) {
        self.0.remove(&ino);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.len() as u64 * BYTES
    }
}
