//! The deletions of a sync: the last thing that it does.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flatout_engine::{Client, Deletion, Folder};

use super::carry::Extra;
use super::plan::{Plan, Step};
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
    pub most: u64,
    /// Folders that become empty go, too.
    pub prunes: bool,
    pub dry_run: bool,
}

impl Removal<'_> {
    /// Removes those that the first walk has noted.
    pub fn remove(
        &self,
        extras: impl Iterator<Item = Extra> + Send + 'static,
        telling: &mut Telling<'_>,
    ) -> Result<(), Failure> {
        let (source, filters) = (self.source.clone(), self.filters.clone());
        let appeared = Arc::new(AtomicU64::new(0));
        let (counted, mut left) = (appeared.clone(), self.most);
        let extras = extras.filter(move |extra| match (&source, extra) {
            (Tree::Folder(folder), Extra::Entry(entry)) if has(folder, &entry.name, &filters) => {
                counted.fetch_add(1, Ordering::Relaxed);
                false
            }
            _ => true,
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
        telling.summary.extra += appeared.load(Ordering::Relaxed);
        Ok(())
    }

    /// Removes those of a walk of its own. What is not known in it is not extra, and is told.
    pub fn remove_of_plan(&self, plan: Plan, telling: &mut Telling<'_>) -> Result<(), Failure> {
        let unread = Arc::<Mutex<Vec<Failure>>>::default();
        let noted = unread.clone();
        let extras = plan.filter_map(move |step| match step {
            Step::Extra(entry) => Some(Extra::Entry(entry)),
            Step::ExtraFolder(name) => Some(Extra::Folder(name)),
            Step::Unread(failure) => {
                noted.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
                None
            }
            _ => None,
        });
        self.remove(extras, telling)?;
        let unread = std::mem::take(&mut *unread.lock().unwrap_or_else(PoisonError::into_inner));
        unread.into_iter().try_for_each(|failure| telling.on_step(Step::Unread(failure)))
    }

    fn only_say(
        &self,
        extras: impl Iterator<Item = Extra>,
        telling: &mut Telling<'_>,
    ) -> Result<(), Failure> {
        for extra in extras {
            if let Extra::Entry(entry) = extra {
                telling.on_deleted(&entry.name, entry.size, None)?;
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
        for extra in extras {
            if telling.console.interrupt.raised() {
                return self.interrupted(telling);
            }
            let name = match extra {
                Extra::Entry(entry) => {
                    let removed = folder.remove_file(&entry.name, entry.size, entry.modified_ns.unwrap_or(0));
                    telling.on_deleted(&entry.name, entry.size, removed.as_ref().err())?;
                    entry.name.rsplit_once('/').map_or_else(String::new, |(parent, _)| parent.to_owned())
                }
                Extra::Folder(name) => name.trim_end_matches('/').to_owned(),
            };
            if self.prunes {
                prune(folder, &name);
            }
        }
        Ok(())
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

/// Removes a folder that is empty, and those above it that become so. One that stays for another reason is
/// as it was.
fn prune(folder: &Folder, name: &str) {
    let mut name = name;
    while !name.is_empty() && folder.remove_empty(name).is_ok_and(|is_gone| is_gone) {
        name = name.rsplit_once('/').map_or("", |(parent, _)| parent);
    }
}
