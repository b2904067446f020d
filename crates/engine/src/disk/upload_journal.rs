//! The journal of an upload in parts: what is sent, by which upload id, and the parts that the origin has. It
//! lies in a folder of the user's, one file for each target, and survives kill -9. What a power failure tears
//! off is sent again.
//!
//! ```text
//!   flatout upload 3                                             a line each, and a checksum behind it
//!   begun ORIGIN URL OPTIONS DEVICE INODE SIZE MODIFIED CHANGED PART_BYTES FORM BEGUN UPLOAD_ID
//!   part NUMBER BYTES FORM:CHECKSUM ETAG
//! ```
//! It is believed only where the origin says so, too: a part counts when the origin lists it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use flatout_wire::body_checksum::{BodyChecksum, ChecksumForm};
use flatout_wire::checksum::Algorithm;
use rustix::fs::FlockOperation;

const HEAD: &str = "flatout upload 3";
/// In place of a form, and of a checksum, where nothing is verified.
const NO_FORM: &str = "none";
const NO_CHECKSUM: &str = "none:0";
/// As long as 10,000 parts with ETags of any length take, and more.
const BYTES_MAX: u64 = 16 << 20;

/// What tells whether a file is what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) bytes: u64,
    /// Of the last change of content, in nanoseconds since 1970.
    pub(crate) modified_ns: i128,
    /// Of the last change of content or attributes: a program may set the other one.
    pub(crate) changed_ns: i128,
}

/// What is sent, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UploadIdentity {
    /// The endpoint, without a bucket or a secret.
    pub(crate) origin: String,
    pub(crate) location: String,
    /// A checksum of what the object is to be stored with.
    pub(crate) options: u64,
    pub(crate) file: FileIdentity,
}

/// An upload that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BegunUpload {
    pub(crate) identity: UploadIdentity,
    pub(crate) part_bytes: u64,
    /// How each part is hashed.
    pub(crate) form: Option<ChecksumForm>,
    /// When, in Unix seconds by the origin's clock; 0 where it did not say.
    pub(crate) begun_s: u64,
    pub(crate) upload_id: String,
}

/// A part that the origin has accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentPart {
    /// From 1.
    pub(crate) number: u32,
    pub(crate) bytes: u64,
    pub(crate) checksum: Option<BodyChecksum>,
    pub(crate) etag: String,
}

/// A journal, locked by the upload that writes it.
pub(crate) struct UploadJournal {
    path: PathBuf,
    file: Mutex<File>,
}

/// What an earlier run has left.
pub(crate) struct EarlierUpload {
    pub(crate) begun: BegunUpload,
    pub(crate) parts: Vec<SentPart>,
}

impl UploadJournal {
    /// The journal of uploads to that target, and what an earlier run left in it. `None` where another
    /// process is sending to it, or the folder cannot be used: the upload then goes without.
    pub(crate) fn open(
        folder: &Path,
        origin: &str,
        location: &str,
    ) -> Option<(UploadJournal, Option<EarlierUpload>)> {
        fs::create_dir_all(folder).ok()?;
        let name = Algorithm::Crc64Nvme.of(format!("{origin}\n{location}").as_bytes());
        let path = folder.join(format!("{name:016x}.upload"));
        let options = File::options().read(true).write(true).create(true).truncate(false).clone();
        let mut file = options.open(&path).ok()?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        // Whoever held the lock may have removed it meanwhile.
        let (held, named) = (file.metadata().ok()?, fs::metadata(&path).ok());
        use std::os::unix::fs::MetadataExt;
        if named.is_none_or(|named| (named.dev(), named.ino()) != (held.dev(), held.ino())) {
            return None;
        }
        let mut text = Vec::new();
        Read::by_ref(&mut file).take(BYTES_MAX).read_to_end(&mut text).ok()?;
        Some((UploadJournal { path, file: Mutex::new(file) }, parse(&text)))
    }

    /// Begins anew, whatever is there.
    ///
    /// # Errors
    /// It cannot be written: the disk is full, for one.
    pub(crate) fn begin(&self, begun: &BegunUpload) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(format!("{HEAD}\n{}", line(&begun_words(begun))).as_bytes())
    }

    /// Notes a part. Where that fails, it is sent again by the next run.
    pub(crate) fn on_accepted(&self, part: &SentPart) {
        let checksum = part.checksum.map_or(NO_CHECKSUM.to_owned(), BodyChecksum::word);
        let SentPart { number, bytes, etag, .. } = part;
        let words = format!("part {number} {bytes} {checksum} {}", escaped(etag));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = file.write_all(line(&words).as_bytes());
    }

    /// The upload has ended: another may go on from here, though this one is not dropped yet. One that never
    /// began leaves no journal.
    pub(crate) fn unlock(&self) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        use std::os::unix::fs::MetadataExt;
        // It has its name still: another run may have made one of that name.
        if file.metadata().is_ok_and(|found| found.len() == 0 && found.nlink() > 0) {
            let _ = fs::remove_file(&self.path);
        }
        // A lock that cannot be given up goes with the file.
        let _ = rustix::fs::flock(&*file, FlockOperation::Unlock);
    }

    /// The upload is over: nothing is left to go on from.
    pub(crate) fn remove(&self) {
        // Under the lock, which goes with the file.
        let _ = fs::remove_file(&self.path);
    }
}

fn begun_words(begun: &BegunUpload) -> String {
    let BegunUpload { identity, part_bytes, form, begun_s, upload_id } = begun;
    let UploadIdentity { origin, location, options, file } = identity;
    let FileIdentity { device, inode, bytes, modified_ns, changed_ns } = file;
    let form = form.map_or(NO_FORM, ChecksumForm::name);
    format!(
        "begun {} {} {options:016x} {device} {inode} {bytes} {modified_ns} {changed_ns} {part_bytes} {form} \
         {begun_s} {}",
        escaped(origin),
        escaped(location),
        escaped(upload_id)
    )
}

/// A line with its checksum, by which a torn one is told.
fn line(words: &str) -> String {
    format!("{words} {:016x}\n", Algorithm::Crc64Nvme.of(words.as_bytes()))
}

/// Without blanks and line breaks.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    flatout_wire::percent::encode_query(text, &mut out);
    out
}

fn unescaped(word: &str) -> Option<String> {
    String::from_utf8(flatout_wire::percent::decode(word).into_owned()).ok()
}

fn parse(text: &[u8]) -> Option<EarlierUpload> {
    let text = std::str::from_utf8(text)
        .unwrap_or_else(|torn| std::str::from_utf8(&text[..torn.valid_up_to()]).unwrap_or_default());
    let mut lines = text.split_inclusive('\n');
    if lines.next()? != format!("{HEAD}\n") {
        return None;
    }
    let mut words = lines.map_while(|line| {
        let (words, sum) = line.strip_suffix('\n')?.rsplit_once(' ')?;
        let sum = u64::from_str_radix(sum, 16).ok()?;
        (sum == Algorithm::Crc64Nvme.of(words.as_bytes())).then(|| words.split(' ').collect::<Vec<_>>())
    });
    let begun = parse_begun(&words.next()?)?;
    Some(EarlierUpload { begun, parts: words.map_while(|words| parse_part(&words)).collect() })
}

fn parse_begun(words: &[&str]) -> Option<BegunUpload> {
    let ["begun", origin, location, options, rest @ ..] = words else { return None };
    let [device, inode, bytes, modified, changed, part_bytes, form, begun_s, id] = rest else { return None };
    let file = FileIdentity {
        device: device.parse().ok()?,
        inode: inode.parse().ok()?,
        bytes: bytes.parse().ok()?,
        modified_ns: modified.parse().ok()?,
        changed_ns: changed.parse().ok()?,
    };
    let options = u64::from_str_radix(options, 16).ok()?;
    let identity =
        UploadIdentity { origin: unescaped(origin)?, location: unescaped(location)?, options, file };
    let form = if *form == NO_FORM { None } else { Some(ChecksumForm::named(form)?) };
    let part_bytes = part_bytes.parse().ok().filter(|bytes| *bytes > 0)?;
    let (begun_s, upload_id) = (begun_s.parse().ok()?, unescaped(id)?);
    Some(BegunUpload { identity, part_bytes, form, begun_s, upload_id })
}

fn parse_part(words: &[&str]) -> Option<SentPart> {
    let ["part", number, bytes, checksum, etag] = words else { return None };
    let checksum = match *checksum {
        NO_CHECKSUM => None,
        word => Some(BodyChecksum::from_word(word)?),
    };
    Some(SentPart {
        number: number.parse().ok()?,
        bytes: bytes.parse().ok()?,
        checksum,
        etag: unescaped(etag)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(upload_id: &str) -> BegunUpload {
        let file = FileIdentity { device: 1, inode: 2, bytes: 3, modified_ns: -4, changed_ns: 5 };
        let (origin, location) = ("http://127.0.0.1:9000".into(), "s3://b/a key\nwith ü".into());
        BegunUpload {
            identity: UploadIdentity { origin, location, options: 6, file },
            part_bytes: 8 << 20,
            form: Some(ChecksumForm::Crc(Algorithm::Crc64Nvme)),
            begun_s: 7,
            upload_id: upload_id.into(),
        }
    }

    fn part(number: u32) -> SentPart {
        let checksum = Some(BodyChecksum::Crc(Algorithm::Crc64Nvme, 0xfedc_ba98_7654_3210));
        SentPart { number, bytes: 8 << 20, checksum, etag: format!("\"etag {number}\"") }
    }

    fn open(folder: &Path) -> (UploadJournal, Option<EarlierUpload>) {
        let begun = begun("");
        let UploadIdentity { origin, location, .. } = &begun.identity;
        UploadJournal::open(folder, origin, location).expect("nobody else has it")
    }

    #[test]
    fn the_next_run_finds_what_was_noted_and_one_has_it_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let (journal, earlier) = open(folder.path());
        assert!(earlier.is_none());
        journal.begin(&begun("an id/with+signs")).expect("there is room");
        (1..=3).for_each(|number| journal.on_accepted(&part(number)));
        let begun = begun("an id/with+signs");
        let UploadIdentity { origin, location, .. } = &begun.identity;
        assert!(UploadJournal::open(folder.path(), origin, location).is_none(), "it is locked");
        assert!(UploadJournal::open(folder.path(), origin, "s3://b/other").is_some());
        drop(journal);
        let (journal, earlier) = open(folder.path());
        let earlier = earlier.expect("what was noted");
        assert_eq!((earlier.begun, earlier.parts), (begun.clone(), vec![part(1), part(2), part(3)]));
        journal.begin(&begun).expect("there is room");
        drop(journal);
        assert_eq!(open(folder.path()).1.expect("begun anew").parts, []);
        open(folder.path()).0.remove();
        assert!(open(folder.path()).1.is_none());
    }

    #[test]
    fn what_is_torn_or_not_ours_counts_for_nothing() {
        let whole = format!(
            "{HEAD}\n{}{}{}",
            line(&begun_words(&begun("id"))),
            line("part 1 8 none:0 a"),
            line("part 2 8 none:0 b")
        );
        for cut in 0..whole.len() {
            let found = parse(&whole.as_bytes()[..cut]);
            let most = [
                whole.len() - 1,
                whole.find("part 2").expect("it is there"),
                whole.find("part 1").expect("it is there"),
            ];
            let parts = found.map_or(0, |found| found.parts.len());
            assert!(parts <= most.iter().filter(|at| cut >= **at).count(), "{cut}");
        }
        assert_eq!(parse(whole.as_bytes()).expect("it is whole").parts.len(), 2);
        let mut flipped = whole.clone().into_bytes();
        let at = whole.find("part 1").expect("it is there") + 5;
        flipped[at] = b'3';
        assert_eq!(parse(&flipped).expect("it has begun").parts.len(), 0);
        assert!(
            parse(b"flatout upload 1\n").is_none() && parse(&[0xff; 40]).is_none() && parse(b"").is_none()
        );
    }
}
