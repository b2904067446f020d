//! `flatout volume ls`: the files of an index, as `flatout ls` shows those of a bucket.

use std::fs::File;

use flatout_erofs::{Entry, Index, IndexError, Inode, Kind};
use flatout_settings::format_size;
use flatout_wire::time;

use super::find::Place;
use crate::args::VolumeLs;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};

pub fn run(args: &VolumeLs, console: &Console) -> Result<Exit, Failure> {
    let found = Place::of("list", &args.index, &args.knobs, console)?.file("list", &args.knobs, console)?;
    let index = flatout_volume::open_index("list", &found.path)?;
    let failed = |error: IndexError| {
        Failure::from(flatout_volume::index_error(&error).during("list", found.path.display()))
    };
    let path = args.folder.trim_matches('/');
    let Some(inode) = index.find(path.as_bytes()).map_err(failed)? else {
        return Err(Failure::not_found(format!("list: {}: {path}: no such file or folder", args.index)));
    };
    let mut summary = events::ListSummary { action: "list", ..Default::default() };
    let mut shown = Shown { args, console, index: &index, summary: &mut summary };
    match (inode.kind, args.recursive) {
        (Kind::File, _) => shown.file(path, &inode)?,
        (Kind::Folder, true) => shown.all(path).map_err(|error| error.failure(failed))?,
        (Kind::Folder, false) => shown.folder(&inode).map_err(|error| error.failure(failed))?,
    }
    summary.exit = Exit::Clean.code();
    console.event(Carries::Lines, &summary)?;
    Ok(Exit::Clean)
}

/// What ends a listing early.
enum Ended {
    Index(IndexError),
    Output(Failure),
}

impl Ended {
    fn failure(self, of_index: impl FnOnce(IndexError) -> Failure) -> Failure {
        match self {
            Ended::Index(error) => of_index(error),
            Ended::Output(failure) => failure,
        }
    }
}

impl From<IndexError> for Ended {
    fn from(error: IndexError) -> Ended {
        Ended::Index(error)
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Ended {
        Ended::Output(failure)
    }
}

struct Shown<'a> {
    args: &'a VolumeLs,
    console: &'a Console,
    index: &'a Index<File>,
    summary: &'a mut events::ListSummary,
}

impl Shown<'_> {
    /// The entries of a folder.
    fn folder(&mut self, folder: &Inode) -> Result<(), Ended> {
        let mut inodes = self.index.inodes();
        for entry in self.index.entries(folder) {
            let Entry { name, nid, kind, .. } = entry?;
            let name = String::from_utf8_lossy(&name).into_owned();
            match kind {
                Kind::File => self.file(&name, &inodes.inode(nid)?)?,
                Kind::Folder => self.prefix(format!("{name}/"))?,
            }
        }
        Ok(())
    }

    /// All files below a folder, in the order of their keys.
    fn all(&mut self, path: &str) -> Result<(), Ended> {
        let below = if path.is_empty() { String::new() } else { format!("{path}/") };
        for file in self.index.files() {
            let file = file?;
            let Some(name) = file.path.strip_prefix(below.as_bytes()) else { continue };
            self.line(&String::from_utf8_lossy(name), file.size, file.modified_s, file.etag)?;
        }
        Ok(())
    }

    fn file(&mut self, name: &str, inode: &Inode) -> Result<(), Failure> {
        let etag = self.index.etag(inode.number).ok().flatten();
        self.line(name, inode.size, inode.modified_s, etag)
    }

    fn line(&mut self, name: &str, size: u64, modified_s: i64, etag: Option<String>) -> Result<(), Failure> {
        self.summary.objects += 1;
        self.summary.bytes += size;
        let modified = time::format_iso_seconds(u64::try_from(modified_s).unwrap_or(0));
        let bytes = if self.args.human_readable { format_size(size) } else { size.to_string() };
        let shown = one_line(name);
        self.console.answer(&match self.args.long || self.args.human_readable {
            true => format!("{modified:20} {bytes:>14} {shown}"),
            false => shown,
        })?;
        self.console.event(
            Carries::Lines,
            &events::Entry {
                kind: "object",
                key: name.to_owned(),
                bytes: Some(size),
                last_modified: Some(modified),
                etag,
                storage_class: None,
            },
        )
    }

    fn prefix(&mut self, name: String) -> Result<(), Failure> {
        self.summary.prefixes += 1;
        let shown = one_line(&name);
        self.console.answer(&match self.args.long || self.args.human_readable {
            true => format!("{:20} {:>14} {shown}", "", "-"),
            false => shown,
        })?;
        self.console.event(
            Carries::Lines,
            &events::Entry {
                kind: "prefix",
                key: name,
                bytes: None,
                last_modified: None,
                etag: None,
                storage_class: None,
            },
        )
    }
}
