//! The deletions of a sync: the last thing that it does.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flatout_engine::{Client, Deletion, Folder};

use super::carry::Extra;
use super::plan::Step;
use super::steps::Steps;
use super::tell::Telling;
use super::trees::Tree;
use crate::commands::rm::delete_each;
use crate::failure::Failure;
use crate::select::Filters;

/// How extra names are removed.
pub struct Removal<'a> {
    pub client: &'a Client,
    pub source: &'a Tree,
    pub target: &'a Tree,
    /// What they leave out is not the source's, even where it has the file.
    pub filters: &'a Filters,
    /// The target, where it is a folder.
    pub folder: Option<Folder>,
    /// Device and inode of the source, where it is a folder: of another one nothing is known.
    pub root: Option<(u64, u64)>,
    /// No more than the first walk found.
    pub most: u64,
    pub dry_run: bool,
}

impl Removal<'_> {
    /// Removes extra names; whether the source was the same folder as long as there were any.
    pub fn remove(
        &self,
        extras: impl Iterator<Item = Extra> + Send + 'static,
        telling: &mut Telling<'_>,
    ) -> Result<bool, Failure> {
        let (source, filters) = (self.source.clone(), self.filters.clone());
        let mut left = self.most;
        let extras = extras.filter(move |extra| match (&source, extra) {
            (Tree::Folder(folder), Extra::Entry(entry)) => !has(folder, &entry.name, &filters),
            _ => true,
        });
        let (source, root, is_same) = (self.source.clone(), self.root, Arc::new(AtomicBool::new(true)));
        let same = is_same.clone();
        // Checked after `has`: a source that is gone has no name.
        let extras = extras.take_while(move |_| {
            let is_same = super::root(&source) == root;
            same.store(is_same, Ordering::Relaxed);
            is_same
        });
        // Folders are in no count.
        let extras = extras.take_while(move |extra| {
            let is_allowed = left > 0 || matches!(extra, Extra::Folder(_));
            left = left.saturating_sub(u64::from(matches!(extra, Extra::Entry(_))));
            is_allowed
        });
        match (&self.folder, self.dry_run) {
            (_, true) => self.only_say(extras, telling),
            (Some(folder), false) => self.remove_files(folder, extras, telling),
            (None, false) => self.remove_objects(extras, telling),
        }?;
        Ok(is_same.load(Ordering::Relaxed))
    }

    /// Removes the extra names of a second walk, up to the first name that is unknown. That one is told.
    pub fn remove_of_steps(&self, steps: Steps, telling: &mut Telling<'_>) -> Result<bool, Failure> {
        let unread = Arc::<Mutex<Vec<Failure>>>::default();
        let noted = unread.clone();
        let extras = steps.map_while(move |step| match step {
            Step::Extra(entry) => Some(Some(Extra::Entry(entry))),
            Step::ExtraFolder(name) => Some(Some(Extra::Folder(name))),
            Step::Unread(failure) | Step::Unasked { why: failure, .. } => {
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
                None
            }
            _ => Some(None),
        });
        let is_same = self.remove(extras.flatten(), telling)?;
        let unread = std::mem::take(&mut *unread.lock().unwrap_or_else(PoisonError::into_inner));
        unread.into_iter().try_for_each(|failure| telling.on_step(Step::Unread(failure)))?;
        Ok(is_same)
    }

    fn only_say(
        &self,
        extras: impl Iterator<Item = Extra>,
        telling: &mut Telling<'_>,
    ) -> Result<(), Failure> {
        let mut folders = ExtraFolders::default();
        for extra in extras {
            self.leave(&mut folders, extra.name(), telling)?;
            match extra {
                Extra::Entry(entry) => {
                    folders.on_removed(&entry.name);
                    telling.on_deleted(&entry.name, entry.size, None)?;
                }
                Extra::Folder(name) => folders.enter(name),
            }
        }
        self.leave(&mut folders, "", telling)
    }

    /// Removes the folders that the walk of extra names has left, if they are empty.
    fn leave(
        &self,
        folders: &mut ExtraFolders,
        next: &str,
        telling: &mut Telling<'_>,
    ) -> Result<(), Failure> {
        while let Some((name, removed)) = folders.left_for(next) {
            let path = name.trim_end_matches('/');
            let is_gone = match &self.folder {
                Some(folder) => folder.remove_empty(path),
                // Of a dry run: whether all that is in it would be gone.
                None => {
                    Ok(std::fs::read_dir(self.target.place(path)).is_ok_and(|all| all.count() == removed))
                }
            };
            // One that stays is as it was.
            if is_gone.is_ok_and(|is_gone| is_gone) {
                folders.on_removed(path);
                telling.on_folder_removed(&name)?;
            }
        }
        Ok(())
    }

    fn remove_files(
        &self,
        folder: &Folder,
        extras: impl Iterator<Item = Extra>,
        telling: &mut Telling<'_>,
    ) -> Result<(), Failure> {
        let _armed = telling.console.interrupt.arm();
        let mut folders = ExtraFolders::default();
        for extra in extras {
            if telling.console.interrupt.raised() {
                break;
            }
            self.leave(&mut folders, extra.name(), telling)?;
            match extra {
                Extra::Entry(entry) => {
                    let removed = folder.remove_file(&entry.name, entry.size, entry.modified_ns.unwrap_or(0));
                    telling.on_deleted(&entry.name, entry.size, removed.as_ref().err())?;
                }
                Extra::Folder(name) => folders.enter(name),
            }
        }
        if telling.console.interrupt.raised() {
            return self.interrupted(telling);
        }
        self.leave(&mut folders, "", telling)
    }

    fn remove_objects(
        &self,
        extras: impl Iterator<Item = Extra> + Send + 'static,
        telling: &mut Telling<'_>,
    ) -> Result<(), Failure> {
        let (target, console) = (self.target.clone(), telling.console);
        let deletions = extras.filter_map(move |extra| match extra {
            Extra::Entry(entry) => {
                Some(Ok(Deletion { location: target.location(&entry.name)?, bytes: entry.size }))
            }
            Extra::Folder(_) => None,
        });
        let prefix_bytes = self.target.location("").map_or(0, |prefix| prefix.key().len());
        let done = delete_each(self.client, console, deletions, |bar, ended| {
            bar.above(|| {
                ended.iter().try_for_each(|deleted| {
                    let name = deleted.deletion.location.key().get(prefix_bytes..).unwrap_or_default();
                    telling.on_deleted(name, deleted.deletion.bytes, deleted.result.as_ref().err())
                })
            })
        })?;
        telling.summary.unknown += done.unknown;
        if console.interrupt.raised() {
            return self.interrupted(telling);
        }
        if let Some(error) = done.incomplete {
            telling.failures.of_all(&error.into());
        }
        Ok(())
    }

    fn interrupted(&self, telling: &mut Telling<'_>) -> Result<(), Failure> {
        let why = format!("sync: {}: interrupted before all extra names were deleted", self.target.shown());
        telling.failures.of_all(&Failure::interrupted(why).with_hint("run it again: it goes on from there"));
        Ok(())
    }
}

/// Whether the source has the file by now: what has appeared since the walk is not extra.
fn has(folder: &Path, name: &str, filters: &Filters) -> bool {
    let path = name.trim_end_matches('/');
    let is_taken = if path == name { filters.take(path) } else { filters.goes_into(path) };
    // No file has such a name, and `/etc` would be looked for elsewhere.
    let is_odd = path.split('/').any(|part| matches!(part, "" | "." | ".."));
    is_taken
        && !is_odd
        && folder.join(path).symlink_metadata().map_or_else(
            |error| {
                use ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
                !matches!(error.kind(), NotFound | NotADirectory | InvalidFilename | InvalidInput)
            },
            |_| true,
        )
}

/// The extra folders that the walk is in, outermost first, each with how many names in it were removed.
#[derive(Default)]
struct ExtraFolders(Vec<(String, usize)>);

impl ExtraFolders {
    fn enter(&mut self, name: String) {
        self.0.push((name, 0));
    }

    /// A file, or a folder without its `/`.
    fn on_removed(&mut self, name: &str) {
        if let Some((folder, removed)) = self.0.last_mut() {
            let is_directly = name.strip_prefix(folder.as_str()).is_some_and(|rest| !rest.contains('/'));
            *removed += usize::from(is_directly);
        }
    }

    /// The innermost, if the next name does not lie in it.
    fn left_for(&mut self, next: &str) -> Option<(String, usize)> {
        self.0.pop_if(|(folder, _)| !next.starts_with(folder.as_str()))
    }
}
