//! Files and folders that must not stay: each goes with its value, and all of them with a program that ends
//! at once.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The temporary files of this program.
#[derive(Clone, Default)]
pub struct TemporaryFiles(Arc<Mutex<Vec<PathBuf>>>);

/// A file or folder that is removed when this is dropped.
pub struct TemporaryPath {
    files: TemporaryFiles,
    path: PathBuf,
}

impl TemporaryFiles {
    /// Makes a file. The program does not end between that and the promise to remove it.
    pub fn create(&self, path: &Path) -> io::Result<(TemporaryPath, File)> {
        let mut paths = self.paths();
        let file = File::create_new(path)?;
        Ok((self.add(&mut paths, path), file))
    }

    /// For a file or folder that somebody else is about to make.
    pub fn register(&self, path: &Path) -> TemporaryPath {
        self.add(&mut self.paths(), path)
    }

    /// Removes all of them. Until the guard is dropped none is made or renamed.
    pub fn remove_all(&self) -> impl Drop + '_ {
        let paths = self.paths();
        paths.iter().for_each(|path| remove(path));
        paths
    }

    fn add(&self, paths: &mut Vec<PathBuf>, path: &Path) -> TemporaryPath {
        paths.push(path.to_owned());
        TemporaryPath { files: self.clone(), path: path.to_owned() }
    }

    fn paths(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TemporaryPath {
    /// Gives it its lasting name, in place of what may stand there.
    pub fn rename(self, to: &Path) -> io::Result<()> {
        let paths = self.files.paths();
        let outcome = fs::rename(&self.path, to);
        // Dropping this value takes the lock, too.
        drop(paths);
        outcome
    }
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        let mut paths = self.files.paths();
        remove(&self.path);
        paths.retain(|path| *path != self.path);
    }
}

/// Removes a file or folder that may not be there, or not any more.
fn remove(path: &Path) {
    let _ = match path.symlink_metadata().is_ok_and(|known| known.is_dir()) {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_temporary_goes_unless_it_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (files, at) = (TemporaryFiles::default(), |name: &str| folder.path().join(name));
        let (page, _) = files.create(&at("page.new")).unwrap();
        let (half, _) = files.create(&at("half.new")).unwrap();
        let made = files.register(&at("made"));
        fs::create_dir_all(at("made/below")).unwrap();
        assert_eq!(*files.paths(), [at("page.new"), at("half.new"), at("made")]);
        page.rename(&at("page")).unwrap();
        drop((half, made));
        assert_eq!(names(folder.path()), ["page"]);
        assert!(files.paths().is_empty());
    }

    #[test]
    fn an_end_at_once_waits_for_whoever_makes_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (files, path) = (TemporaryFiles::default(), folder.path().join("page.new"));
        let (page, _) = files.create(&path).unwrap();
        // As the end of the program holds it until the program is gone.
        let held = files.remove_all();
        let (late, to) = (files.clone(), folder.path().join("page"));
        let renaming = thread::spawn(move || (page.rename(&to), late.create(&to).is_ok()));
        thread::sleep(Duration::from_millis(50));
        assert!(!renaming.is_finished() && names(folder.path()).is_empty());
        drop(held);
        let (renamed, _) = renaming.join().unwrap();
        assert!(renamed.is_err(), "there was nothing left to rename");
    }
}
