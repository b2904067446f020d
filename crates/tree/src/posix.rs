//! What POSIX knows of a file and no object has: mode, owner, times, whether it is a symbolic link, extended
//! attributes. They are kept in the object's metadata under the names of s3fs and ossfs 1.0, which read and
//! write each other's buckets:
//!
//! ```text
//! mode                  st_mode, type included, decimal          33188
//! uid gid               decimal                                  1000
//! mtime atime ctime     seconds, and nanoseconds behind a dot    1700000000.000000005
//! xattr                 {"user.name":"BASE64"}, percent-encoded; s3fs escapes nothing in names
//! ```
//!
//! The target of a symbolic link is its object's content. A folder's attributes are those of its marker
//! `NAME/`, whose type is application/x-directory.

use std::collections::BTreeMap;

use base64_simd::STANDARD;
use flatout_wire::object_options::ObjectOptions;
use flatout_wire::percent;

use crate::attributes::FileKind;

/// Bits of `st_mode` (inode(7)).
const TYPE: u32 = 0o170_000;
const FILE: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const AS_OWNER: u32 = 0o4000;
pub(crate) const AS_GROUP: u32 = 0o2000;
const GROUP_RUNS: u32 = 0o10;

/// The name of the metadata that has the time of the content.
pub(crate) const MODIFIED: &str = "mtime";
/// The name of the metadata by which an upload is told from any other, where its answer was lost.
pub(crate) const TOKEN: &str = "flatout-staged";
const FOLDER_TYPE: &str = "application/x-directory";

/// Since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    pub s: i64,
    pub ns: u32,
}

/// As far as its metadata says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Posix {
    /// Permission bits, without the type.
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    /// Where a program has set it; else it is the object's own.
    pub(crate) modified: Option<Time>,
    pub(crate) accessed: Option<Time>,
    pub(crate) changed: Option<Time>,
    pub(crate) is_link: bool,
    /// The type of a pipe, socket or device, which this mount shows as a file, and which it stays to s3fs.
    pub(crate) special: Option<u32>,
    /// By their names, `user.` included.
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
    /// What else describes the object, which is kept when it is written anew.
    pub(crate) content_type: Option<String>,
    pub(crate) others: Vec<(String, String)>,
}

impl Posix {
    /// Of an object's metadata: names without a prefix.
    pub(crate) fn read(metadata: &[(String, String)], content_type: Option<&str>) -> Posix {
        let content_type = content_type.filter(|kind| *kind != FOLDER_TYPE).map(str::to_owned);
        let mut posix = Posix { content_type, ..Posix::default() };
        for (name, value) in metadata {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "mode" => {
                    if let Ok(mode) = value.parse::<u32>() {
                        posix.mode = Some(mode & 0o7777);
                        posix.is_link = mode & TYPE == LINK;
                        let is_special = !matches!(mode & TYPE, 0 | FILE | FOLDER | LINK);
                        posix.special = is_special.then_some(mode & TYPE);
                    }
                }
                "uid" => posix.uid = value.parse().ok(),
                "gid" => posix.gid = value.parse().ok(),
                MODIFIED => posix.modified = time(value),
                "atime" => posix.accessed = time(value),
                "ctime" => posix.changed = time(value),
                "xattr" => posix.xattrs = xattrs(value).unwrap_or_default(),
                // Of one upload alone.
                TOKEN => {}
                _ => posix.others.push((name.clone(), value.to_owned())),
            }
        }
        posix
    }

    /// With what an object of this is made.
    pub(crate) fn options(&self, kind: FileKind) -> ObjectOptions {
        let mut metadata = self.others.clone();
        let mut add = |name: &str, value: Option<String>| {
            metadata.extend(value.map(|value| (name.to_owned(), value)));
        };
        let of_type = match kind {
            FileKind::Folder => FOLDER,
            FileKind::File if self.is_link => LINK,
            FileKind::File => self.special.unwrap_or(FILE),
        };
        add("mode", self.mode.map(|mode| (of_type | mode).to_string()));
        add("uid", self.uid.map(|uid| uid.to_string()));
        add("gid", self.gid.map(|gid| gid.to_string()));
        add(MODIFIED, self.modified.map(written));
        add("atime", self.accessed.map(written));
        add("ctime", self.changed.map(written));
        add("xattr", (!self.xattrs.is_empty()).then(|| written_xattrs(&self.xattrs)));
        let content_type = match kind {
            FileKind::Folder => Some(FOLDER_TYPE.to_owned()),
            FileKind::File => self.content_type.clone(),
        };
        ObjectOptions { content_type, metadata, ..ObjectOptions::default() }
    }

    /// As [`Posix::options`]; none where attributes are not kept.
    pub(crate) fn options_of(posix: Option<&Posix>, kind: FileKind) -> ObjectOptions {
        posix.map_or_else(ObjectOptions::default, |posix| posix.options(kind))
    }

    /// Whether it says something that is over once the content is written.
    pub(crate) fn is_of_content(&self) -> bool {
        self.modified.is_some() || self.changed.is_some() || self.special.is_some()
    }

    /// The target of a link that ossfs 1.0 has made with `symlink_in_meta`: its object is empty then.
    /// `header:LENGTH:PERCENT-ENCODED` (`FdEntity::SetSymlinkAttr` of ossfs 1.91).
    pub(crate) fn target(&self) -> Option<Vec<u8>> {
        let stated = self.others.iter().find(|(name, _)| name.eq_ignore_ascii_case("symlink-target"));
        let (length, encoded) =
            stated.filter(|_| self.is_link)?.1.strip_prefix("header:")?.split_once(':')?;
        let target = percent::decode(encoded).into_owned();
        (length.parse() == Ok(target.len())).then_some(target)
    }

    /// After a write by another user than root: without the bits by which a program runs as the file's owner
    /// or group. `None` where it has none. As the kernel has it, the group's bit means that only where the
    /// group may run it.
    pub(crate) fn without_privileges(&self) -> Option<Posix> {
        let mode = self.mode?;
        let of_group = if mode & GROUP_RUNS == 0 { 0 } else { AS_GROUP };
        let left = mode & !(AS_OWNER | of_group);
        (left != mode).then(|| Posix { mode: Some(left), ..self.clone() })
    }

    /// States the time of the content, unless a program has set one or it is not known (0): a copy of the
    /// object has another time of its own.
    pub(crate) fn keep_time(&mut self, modified_s: u32) {
        if self.modified.is_none() && modified_s != 0 {
            self.modified = Some(Time { s: i64::from(modified_s), ns: 0 });
        }
    }

    /// Its content is written: times of that which a program had set are over.
    pub(crate) fn on_written(&mut self) {
        (self.modified, self.changed, self.special) = (None, None, None);
    }
}

fn time(text: &str) -> Option<Time> {
    let (s, ns) = text.split_once('.').unwrap_or((text, "0"));
    Some(Time { s: s.parse().ok()?, ns: ns.parse().ok().filter(|ns| *ns < 1_000_000_000).unwrap_or(0) })
}

fn written(time: Time) -> String {
    match time.ns {
        0 => time.s.to_string(),
        ns => format!("{}.{ns:09}", time.s),
    }
}

fn xattrs(text: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let text = percent::decode(text);
    let read = serde_json::from_slice(&text).ok();
    let read: BTreeMap<String, String> = read.or_else(|| unescaped(std::str::from_utf8(&text).ok()?))?;
    let decoded =
        read.into_iter().map(|(name, value)| Some((name, STANDARD.decode_to_vec(value.as_bytes()).ok()?)));
    decoded.collect()
}

/// With names that JSON would have escaped: as s3fs writes them.
fn unescaped(text: &str) -> Option<BTreeMap<String, String>> {
    let mut rest = text.strip_prefix('{')?.strip_suffix('}')?;
    let mut read = BTreeMap::new();
    while !rest.is_empty() {
        let (name, after) = rest.strip_prefix('"')?.split_once("\":\"")?;
        let (value, after) = after.split_once('"')?;
        read.insert(name.to_owned(), value.to_owned());
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    Some(read)
}

fn written_xattrs(xattrs: &BTreeMap<String, Vec<u8>>) -> String {
    let encoded: BTreeMap<&str, String> =
        xattrs.iter().map(|(name, value)| (name.as_str(), STANDARD.encode_to_string(value))).collect();
    let text = serde_json::to_string(&encoded).expect("it is text");
    let mut written = String::new();
    percent::encode_query(&text, &mut written);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(rows: &[(&str, &str)]) -> Vec<(String, String)> {
        rows.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// As s3fs 1.97 writes it.
    #[test]
    fn what_s3fs_has_written_is_read_and_written_again() {
        let rows = metadata(&[
            ("color", "blue"),
            ("mode", "33188"),
            ("uid", "1000"),
            ("gid", "100"),
            ("mtime", "1700000000.000000005"),
            ("atime", "1700000001"),
            ("ctime", "1700000002"),
            ("xattr", "%7B%22user.a%22%3A%22aGVsbG8%3D%22%7D"),
        ]);
        let posix = Posix::read(&rows, Some("text/plain"));
        assert_eq!((posix.mode, posix.uid, posix.gid), (Some(0o644), Some(1000), Some(100)));
        assert_eq!(posix.modified, Some(Time { s: 1_700_000_000, ns: 5 }));
        assert_eq!((posix.is_link, &posix.xattrs["user.a"][..]), (false, &b"hello"[..]));
        let options = posix.options(FileKind::File);
        assert_eq!((options.metadata, options.content_type), (rows, Some("text/plain".to_owned())));
    }

    #[test]
    fn types_are_part_of_the_mode() {
        let link = Posix { mode: Some(0o777), is_link: true, ..Posix::default() };
        let written = link.options(FileKind::File);
        assert_eq!(written.metadata, metadata(&[("mode", "41471")]));
        assert_eq!(Posix::read(&written.metadata, None), link);
        let folder = Posix { mode: Some(0o755), ..Posix::default() }.options(FileKind::Folder);
        assert_eq!(folder.metadata, metadata(&[("mode", "16877")]));
        assert_eq!(folder.content_type.as_deref(), Some("application/x-directory"));
        // Bits without a type are those of s3sync.
        assert_eq!(Posix::read(&metadata(&[("mode", "420")]), None).mode, Some(0o644));
    }

    #[test]
    fn a_pipe_of_s3fs_stays_one() {
        let rows = metadata(&[("mode", "4516")]);
        let pipe = Posix::read(&rows, None);
        assert_eq!((pipe.mode, pipe.is_link), (Some(0o644), false));
        assert_eq!(pipe.options(FileKind::File).metadata, rows);
        // What has content is none any more.
        let mut written = pipe;
        written.on_written();
        assert_eq!(written.options(FileKind::File).metadata, metadata(&[("mode", "33188")]));
    }

    #[test]
    fn targets_in_metadata_are_those_of_ossfs() {
        let target = |mode: &str, text: &str| {
            Posix::read(&metadata(&[("mode", mode), ("Symlink-Target", text)]), None).target()
        };
        let stated = "header:14:gr%C3%BCn%20%C3%BC%20%2541%2B";
        assert_eq!(target("41471", stated), None, "the length is another");
        let stated = stated.replace("14", "13");
        assert_eq!(target("41471", &stated), Some("grün ü %41+".into()));
        assert_eq!(target("33188", &stated), None);
        for other in ["body:0:", "header:", "header:1", "header:x:y", ""] {
            assert_eq!(target("41471", other), None, "{other}");
        }
        // It stays what it is when its mode changes.
        let rows = metadata(&[("symlink-target", &stated), ("mode", "41471")]);
        assert_eq!(Posix::read(&rows, None).options(FileKind::File).metadata, rows);
    }

    #[test]
    fn names_that_s3fs_does_not_escape_are_read() {
        let names = ["user.back\\s", "user.tab\t", "user.a,b", "user.q\"q", "user.{}", "user.a:b"];
        let pairs: Vec<String> = names.iter().map(|name| format!("\"{name}\":\"dg==\"")).collect();
        let text = format!("{{{}}}", pairs.join(","));
        let mut written = String::new();
        percent::encode_query(&text, &mut written);
        let read = xattrs(&written).unwrap();
        assert_eq!(read.len(), names.len());
        assert!(names.iter().all(|name| read[*name] == b"v"), "{read:?}");
        for wrong in ["{", "{x}", "{\"a\"}", "{\"a\":\"b", "{\"a\\z\":\"?\"}"] {
            assert_eq!(xattrs(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_as_if_it_were_not_there() {
        let rows =
            metadata(&[("mode", "x"), ("uid", "-1"), ("mtime", "soon"), ("xattr", "%7B"), ("gid", "")]);
        assert_eq!(Posix::read(&rows, None), Posix::default());
        assert_eq!(Posix::read(&metadata(&[("mtime", "5.x")]), None).modified, Some(Time { s: 5, ns: 0 }));
        assert_eq!(Posix::default().options(FileKind::File), ObjectOptions::default());
    }

    #[test]
    fn what_others_write_runs_as_nobody_else() {
        let after = |mode| Posix { mode: Some(mode), ..Posix::default() }.without_privileges();
        let rows = [(0o4755, 0o755), (0o2755, 0o755), (0o6777, 0o777), (0o6744, 0o2744), (0o5755, 0o1755)];
        for (mode, left) in rows {
            assert_eq!(after(mode).and_then(|posix| posix.mode), Some(left), "{mode:o}");
        }
        for mode in [0o755, 0o1777, 0o2644] {
            assert_eq!(after(mode), None, "{mode:o}");
        }
        assert_eq!(Posix::default().without_privileges(), None);
    }

    #[test]
    fn any_extended_attributes_come_back() {
        let xattrs: BTreeMap<String, Vec<u8>> = [
            ("user.empty".to_owned(), Vec::new()),
            ("user.all".to_owned(), (0..=255).collect()),
            ("user.\"q\" ü".to_owned(), b"{}".to_vec()),
        ]
        .into();
        assert_eq!(super::xattrs(&written_xattrs(&xattrs)), Some(xattrs));
    }
}
