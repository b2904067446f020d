//! The engine's client as a store.

use std::sync::{Arc, OnceLock};

use flatout_engine::{
    AppendPosition, Bucket, Client, Dialect, Entry, Error, Listing, MemoryCharge, Object, Put, Reader,
    Report, ServerCopy, Source, StreamUploader, Transfer, UploadEnded, Version, upload_stream,
};
use flatout_wire::checksum::Coverage;
use flatout_wire::head::quoted;
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};
use flatout_wire::time;
use rustix::time::{ClockId, clock_gettime};

use crate::files::{Cancel, Slices, WriteMoment};
use crate::posix::MODIFIED;
use crate::store::{
    Copied, FilePut, Head, ListingPages, MemoryAccount, ObjectStore, ObjectUpload, Stored, UploadNotes,
    VersionReader,
};

impl ObjectStore for Client {
    type VersionReader = Reader;
    type MemoryAccount = MemoryCharge;
    type Upload = ClientUpload;

    fn list(&self, under: &Location, most: Option<u32>) -> Result<Box<dyn ListingPages>, Error> {
        let listing = Client::list(self, under, false)?;
        Ok(Box::new(match most {
            Some(most) => listing.in_pages_of(most),
            None => listing,
        }))
    }

    fn list_deep(&self, under: &Location) -> Result<Box<dyn ListingPages>, Error> {
        Ok(Box::new(Client::list(self, under, true)?))
    }

    fn put(
        &self,
        to: &Location,
        bytes: Arc<Vec<u8>>,
        as_: &ObjectOptions,
        condition: Condition,
    ) -> Result<Stored, Error> {
        let put = Put::new(to.clone(), Source::Memory(Arc::new(SharedBytes(bytes))));
        let put = put.with_options(as_.clone()).on_condition(condition);
        Ok(stored(&Client::put(self, put)?.wait()?))
    }

    fn describe(&self, object: &Location, etag: Option<&str>, as_: &ObjectOptions) -> Result<Stored, Error> {
        let copy =
            ServerCopy::new(object.clone(), object.clone()).with_options(as_.clone()).describing_anew();
        // It copies the version that it finds, and no other: this one has to be it.
        let copy = match etag {
            Some(etag) if !etag.starts_with("W/") => {
                // A copy in parts takes long enough for another client to replace it meanwhile.
                copy.of_etag(etag).on_condition(Condition::unchanged(object, etag).unwrap_or_default())
            }
            _ => copy,
        };
        Ok(stored(&Client::copy(self, copy)?.wait()?))
    }

    fn upload(
        &self,
        to: &Location,
        as_: &ObjectOptions,
        condition: Condition,
        continues: Option<Object>,
        notes: Option<Arc<dyn UploadNotes>>,
    ) -> Result<ClientUpload, Error> {
        let (uploader, source) = upload_stream();
        let put = Put::new(to.clone(), Source::Stream(source)).with_options(as_.clone());
        let mut put = put.on_condition(condition);
        if let Some(object) = continues {
            put = put.continuing(object);
        }
        let noted = notes.map(NotedUpload::new);
        if let Some(noted) = noted.clone() {
            let object = to.clone();
            put = put.on_begun(move |upload_id| noted.begun(&object, upload_id));
        }
        Ok(ClientUpload { uploader, transfer: Client::put(self, put)?, noted })
    }

    fn put_file(&self, file: FilePut<'_>) -> Result<Stored, Error> {
        let FilePut { to, path, as_, edits, condition, notes, withdrawal } = file;
        let put = Put::new(to.clone(), Source::File(path.to_owned())).with_options(as_.clone());
        // Each attempt is described by another token, so none goes on with the parts of another.
        let mut put = put.on_condition(condition).without_resume();
        if let Some((object, parts)) = edits {
            put = put.editing(object, parts);
        }
        let noted = notes.map(NotedUpload::new);
        if let Some(noted) = noted.clone() {
            let object = to.clone();
            put = put.on_begun(move |upload_id| noted.begun(&object, upload_id));
        }
        let transfer = Client::put(self, put)?;
        let switch = transfer.cancel_switch();
        let uploading = withdrawal.begin_upload(move || switch.withdraw());
        let report = transfer.wait();
        drop(uploading);
        let report = report?;
        noted.iter().for_each(NotedUpload::ended);
        Ok(stored(&report))
    }

    fn append(
        &self,
        to: &Location,
        position: AppendPosition,
        bytes: Arc<Vec<u8>>,
    ) -> Result<(Stored, AppendPosition), Error> {
        let appended = Client::append(self, to, position, bytes.as_slice().into())?;
        let version = appended.version;
        Ok((stored_version(&version, appended.position.at), appended.position))
    }

    fn copy(
        &self,
        from: &Location,
        to: &Location,
        condition: Condition,
        keeps_time: bool,
        notes: Option<Arc<dyn UploadNotes>>,
    ) -> Result<Copied, Error> {
        let mut copy = ServerCopy::new(from.clone(), to.clone()).on_condition(condition);
        if keeps_time {
            copy = copy.stating_time_as(MODIFIED);
        }
        let noted = notes.map(NotedUpload::new);
        if let Some(noted) = noted.clone() {
            let object = to.clone();
            copy = copy.on_begun(move |upload_id| noted.begun(&object, upload_id));
        }
        let report = Client::copy(self, copy)?.wait()?;
        noted.iter().for_each(NotedUpload::ended);
        let source = report.stat.as_ref().and_then(|stat| stat.version.etag.as_deref());
        Ok(Copied { from_etag: source.map(|etag| quoted(etag).into_owned()), stored: stored(&report) })
    }

    fn delete(&self, object: &Location) -> Result<(), Error> {
        Client::delete(self, object, None)
    }

    fn delete_version(&self, object: &Location, etag: &str) -> Result<(), Error> {
        self.delete_if_match(object, etag)
    }

    fn head(&self, object: &Location) -> Result<Head, Error> {
        let stat = self.stat(object)?;
        let of_all = stat.checksums.iter().filter(|checksum| checksum.kind == Coverage::Full);
        let checksums = of_all.map(|checksum| (checksum.algorithm, checksum.value)).collect();
        let is_appendable = stat.object_type.as_deref() == Some("Appendable");
        let (metadata, content_type) = (stat.metadata, stat.content_type);
        Ok(Head { checksums, is_appendable, metadata, content_type, ..head_of(stat.version) })
    }

    fn buckets(&self, dialect: Dialect) -> Result<Vec<Bucket>, Error> {
        Client::buckets(self, dialect)
    }

    fn content(&self, version: Object) -> Result<Reader, Error> {
        self.reader(version)
    }

    fn account(&self) -> MemoryCharge {
        self.memory_charge()
    }

    fn now_ms(&self) -> u64 {
        let now = clock_gettime(ClockId::Boottime);
        (now.tv_sec as u64) * 1000 + now.tv_nsec as u64 / 1_000_000
    }

    fn unix_s(&self) -> i64 {
        clock_gettime(ClockId::Realtime).tv_sec
    }
}

/// Who hears of an upload, and its id once it has one.
#[derive(Clone)]
struct NotedUpload(Arc<dyn UploadNotes>, Arc<OnceLock<String>>);

impl NotedUpload {
    fn new(notes: Arc<dyn UploadNotes>) -> NotedUpload {
        NotedUpload(notes, Arc::default())
    }

    fn begun(&self, object: &Location, upload_id: &str) {
        self.0.begun(object, upload_id);
        let _ = self.1.set(upload_id.to_owned());
    }

    /// The object is there.
    fn ended(&self) {
        if let Some(id) = self.1.get() {
            self.0.ended(id);
        }
    }
}

/// An upload of a stream.
pub struct ClientUpload {
    // Dropped first: an upload whose writer is gone ends at once.
    uploader: StreamUploader,
    transfer: Transfer,
    noted: Option<NotedUpload>,
}

impl ObjectUpload for ClientUpload {
    fn write(
        &mut self,
        bytes: &[u8],
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, UploadEnded> {
        let has_room = self.uploader.reserve(|| goes_on(WriteMoment::Wait))?;
        if !has_room || !goes_on(WriteMoment::Take) {
            return Ok(false);
        }
        self.uploader.write_reserved(bytes);
        Ok(true)
    }

    fn finish(self) -> Result<Stored, Error> {
        self.uploader.finish();
        let report = self.transfer.wait()?;
        self.noted.iter().for_each(NotedUpload::ended);
        Ok(stored(&report))
    }
}

/// `Source::Memory` takes what is shared as bytes.
struct SharedBytes(Arc<Vec<u8>>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The answer to a write rarely has a time: that of now is close.
fn stored(report: &Report) -> Stored {
    stored_version(&report.version, report.bytes)
}

fn stored_version(version: &Version, bytes: u64) -> Stored {
    let told_s = version.last_modified.as_deref().and_then(time::parse_http);
    let modified_s = told_s.map_or_else(|| clock_gettime(ClockId::Realtime).tv_sec, |told_s| told_s as i64);
    let etag = version.etag.as_deref().map(|etag| quoted(etag).into_owned());
    Stored { size: version.size.unwrap_or(bytes), etag, modified_s }
}

fn head_of(version: Version) -> Head {
    let Version { etag, last_modified, size } = version;
    // In the form that listings use.
    let etag = etag.map(|etag| quoted(&etag).into_owned());
    let modified_s = last_modified.as_deref().and_then(time::parse_http).unwrap_or(0);
    Head { size: size.unwrap_or(0), etag, modified_s, ..Head::default() }
}

impl ListingPages for Listing {
    fn next_page(&mut self) -> Result<(Vec<Entry>, bool), Error> {
        let entries = self.page()?;
        Ok((entries, self.is_done()))
    }

    fn page_age_ms(&self) -> u64 {
        u64::try_from(self.page_age().as_millis()).unwrap_or(u64::MAX)
    }
}

impl VersionReader for Reader {
    fn read(
        &self,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, Error>) + Send + 'static,
    ) -> Option<Cancel> {
        let reading = Reader::read(self, at, bytes, move |result| match result {
            Ok(pieces) => done(Ok(&mut pieces.slices())),
            Err(why) => done(Err(why)),
        });
        if reading.is_over() {
            return None;
        }
        Some(Box::new(move || {
            // Where it came too late, `done` has been called.
            reading.cancel();
        }))
    }

    fn set_next(&self, next: impl FnOnce() -> Option<Object> + Send + 'static) {
        Reader::set_next(self, next);
    }
}

impl MemoryAccount for MemoryCharge {
    fn set(&mut self, bytes: u64) {
        MemoryCharge::set(self, bytes);
    }

    fn is_over(&self) -> bool {
        MemoryCharge::is_over(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_tells_what_a_listing_would() {
        let check = |etag: Option<&str>, modified: Option<&str>, want: (Option<&str>, u64)| {
            let version = Version {
                etag: etag.map(String::from),
                last_modified: modified.map(String::from),
                size: Some(9),
            };
            let Head { size, etag, modified_s, .. } = head_of(version);
            assert_eq!((etag.as_deref(), modified_s, size), (want.0, want.1, 9));
        };
        let time = "Sun, 06 Nov 1994 08:49:37 GMT";
        check(Some("\"a\""), Some(time), (Some("\"a\""), 784_111_777));
        check(Some("a"), Some("yesterday"), (Some("\"a\""), 0));
        check(Some("W/\"a\""), None, (Some("W/\"a\""), 0));
        check(None, None, (None, 0));
    }
}
