//! A copy to another service: every byte comes here, and goes on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use flatout_engine::{
    AllocatedBuffer, CancelSwitch, Client, Error, Get, Landing, Put, Report, Source, Stat, StreamReader,
    StreamUploader, Transfer, Verified, stream, upload_stream,
};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

/// Transfers that a signal ends. Those that begin after it end at once.
#[derive(Clone, Default)]
pub struct Switches(Arc<Mutex<SwitchesState>>);

#[derive(Default)]
struct SwitchesState {
    is_cancelled: bool,
    next: u64,
    switches: HashMap<u64, CancelSwitch>,
}

/// Keeps a transfer among those that a signal ends.
pub struct SwitchGuard(Switches, u64);

impl Switches {
    pub fn cancel(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_cancelled = true;
        state.switches.values().for_each(CancelSwitch::cancel);
    }

    pub fn add(&self, transfer: &Transfer) -> SwitchGuard {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (number, switch) = (state.next, transfer.cancel_switch());
        if state.is_cancelled {
            switch.cancel();
        }
        state.next += 1;
        state.switches.insert(number, switch);
        SwitchGuard(self.clone(), number)
    }
}

impl Drop for SwitchGuard {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).switches.remove(&self.1);
    }
}

/// What is copied, and where to.
pub struct Through<'a> {
    pub client: &'a Client,
    pub from: &'a Location,
    pub to: &'a Location,
    /// What differs from the source.
    pub options: ObjectOptions,
}

/// A copy on its way.
pub struct Passing {
    pub download: Transfer,
    pub upload: Transfer,
    reader: StreamReader,
    uploader: StreamUploader,
    _guards: [SwitchGuard; 2],
}

impl Through<'_> {
    /// Looks at the source, and begins. What is read is of the version that is there now.
    pub fn start(mut self, condition: Condition, switches: &Switches) -> Result<Passing, Error> {
        let (writer, reader) = stream();
        let (uploader, source) = upload_stream();
        let (download, reads) = self.read(Landing::Stream(writer), switches)?;
        let (upload, writes) = self.write(Source::Stream(source), condition, switches)?;
        Ok(Passing { download, upload, reader, uploader, _guards: [reads, writes] })
    }

    /// Copies a short object, which is held in memory meanwhile.
    pub fn copy_short(mut self, condition: Condition, switches: &Switches) -> Result<Report, Error> {
        let memory = AllocatedBuffer::new();
        let (download, _reads) = self.read(Landing::Allocated(memory.clone()), switches)?;
        let read = download.wait()?;
        let content = memory.take().expect("a get that ended well leaves it");
        let (upload, _writes) = self.write(Source::Memory(Arc::new(content)), condition, switches)?;
        Ok(of_both(read, upload.wait()?))
    }

    /// Begins to read the version of the source that is there now, and describes the new object as it is.
    fn read(&mut self, landing: Landing, switches: &Switches) -> Result<(Transfer, SwitchGuard), Error> {
        let etag = self.describe(self.client.stat(self.from)?)?;
        let get = Get::new(self.from.clone(), landing);
        let download = self.client.get(if let Some(etag) = etag { get.with_if_match(etag) } else { get })?;
        let guard = switches.add(&download);
        Ok((download, guard))
    }

    fn write(
        self,
        source: Source,
        condition: Condition,
        switches: &Switches,
    ) -> Result<(Transfer, SwitchGuard), Error> {
        let put = Put::new(self.to.clone(), source).with_options(self.options).on_condition(condition);
        let upload = self.client.put(put)?;
        let guard = switches.add(&upload);
        Ok((upload, guard))
    }

    /// The new object is described as its source is, but for what was given. The ETag that pins the source.
    fn describe(&mut self, stat: Stat) -> Result<Option<String>, Error> {
        let given = std::mem::take(&mut self.options);
        if given.tags.is_empty() && self.from.bucket().is_some() {
            self.options.tags = self.client.tags(self.from)?;
        }
        let described = ObjectOptions { tags: std::mem::take(&mut self.options.tags), ..stat.described() };
        self.options = given.over(described);
        Ok(stat.version.etag)
    }
}

impl Passing {
    /// Reads the object in order and writes what comes, as many bytes at a time as --memory allows. The new
    /// object appears only once all of it was read.
    pub fn carry(self) -> Result<Report, Error> {
        let Passing { download, upload, mut reader, mut uploader, _guards } = self;
        while let Some(chunk) = reader.next() {
            if uploader.write(chunk).is_err() {
                // The upload itself says why.
                download.cancel_switch().cancel();
                drop(reader);
                let _ = download.wait();
                return upload.wait();
            }
        }
        match download.wait() {
            Ok(read) => {
                uploader.finish();
                Ok(of_both(read, upload.wait()?))
            }
            Err(error) => {
                // One that is not finished makes no object.
                drop(uploader);
                let _ = upload.wait();
                Err(error)
            }
        }
    }
}

/// What is known of the copy: its bytes are verified where both ways were.
fn of_both(read: Report, written: Report) -> Report {
    let is_verified = !matches!(read.verified, Verified::None(_));
    let verified = if is_verified { written.verified } else { read.verified };
    Report { verified, stat: Some(Stat { version: read.version, ..Stat::default() }), ..written }
}
