//! What all writers share: the memory of files that are kept whole until they are closed, counted together
//! towards the client's limit, who hears of uploads, and where files are staged.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_engine::{Error, ErrorKind, setting, text};

use crate::fs_error::FsError;
use crate::staging::StagingFolder;
use crate::store::{MemoryAccount, UploadNotes};

pub(crate) struct Buffers<A> {
    state: Mutex<State<A>>,
    most: u64,
    /// Hears of uploads.
    pub(crate) notes: Option<Arc<dyn UploadNotes>>,
    /// Where files are that are written in any order.
    pub(crate) staging: Option<Arc<StagingFolder>>,
}

struct State<A> {
    account: A,
    bytes: u64,
}

/// The bytes of one file.
pub(crate) struct BufferedBytes<A: MemoryAccount> {
    bytes: Arc<Vec<u8>>,
    counted: u64,
    buffers: Arc<Buffers<A>>,
}

impl<A: MemoryAccount> Buffers<A> {
    /// At most `most` bytes of all files together.
    pub(crate) fn new(
        account: A,
        most: u64,
        notes: Option<Arc<dyn UploadNotes>>,
        staging: Option<Arc<StagingFolder>>,
    ) -> Arc<Buffers<A>> {
        Arc::new(Buffers { state: Mutex::new(State { account, bytes: 0 }), most, notes, staging })
    }

    pub(crate) fn empty(self: &Arc<Buffers<A>>) -> BufferedBytes<A> {
        BufferedBytes { bytes: Arc::default(), counted: 0, buffers: self.clone() }
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.state().bytes
    }

    fn change(&self, from: u64, to: u64) -> Result<(), FsError> {
        let mut state = self.state();
        let bytes = state.bytes - from + to;
        if to > from && bytes > self.most {
            let cause = "the files that are being written take all memory that they may have";
            let error = Error::new(ErrorKind::Usage, cause)
                .with_hint([text("close some of them, or use a larger "), setting("memory")]);
            return Err(FsError::because(libc::ENOMEM, error));
        }
        state.bytes = bytes;
        state.account.set(bytes);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<A: MemoryAccount> BufferedBytes<A> {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of now. While they are shared, more of them are added to a copy.
    pub(crate) fn shared(&self) -> Arc<Vec<u8>> {
        self.bytes.clone()
    }

    /// # Errors
    /// `ENOMEM`; nothing is added then.
    pub(crate) fn extend(&mut self, bytes: &[u8]) -> Result<(), FsError> {
        let all = Arc::make_mut(&mut self.bytes);
        let needed = all.len() + bytes.len();
        if needed > all.capacity() {
            let capacity = needed.max(2 * all.capacity()) as u64;
            self.buffers.change(self.counted, capacity)?;
            self.counted = capacity;
            all.reserve_exact(capacity as usize - all.len());
        }
        all.extend_from_slice(bytes);
        Ok(())
    }
}

impl<A: MemoryAccount> Drop for BufferedBytes<A> {
    fn drop(&mut self) {
        let _ = self.buffers.change(self.counted, 0);
    }
}
