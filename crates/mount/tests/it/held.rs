//! A real mount that is gone when the test is over, whatever became of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatout_mount::{Observer, Options, Session};

use crate::model::Model;

pub struct Held {
    pub model: Arc<Model>,
    session: Option<Session>,
    folder: tempfile::TempDir,
}

impl Held {
    pub fn new() -> Held {
        Held::of(|_| {})
    }

    /// With other options than usual.
    pub fn of(change: impl FnOnce(&mut Options)) -> Held {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(folder.path());
        change(&mut options);
        let model = Arc::new(Model::default());
        let session =
            flatout_mount::mount(&options).unwrap().serve(model.clone(), Observer::default()).unwrap();
        Held { model, session: Some(session), folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn point(&self) -> &Path {
        self.folder.path()
    }

    pub fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    /// How often the files were asked for this.
    pub fn asked(&self, what: &str) -> usize {
        self.model.state().asked.iter().filter(|asked| *asked == what).count()
    }

    /// The session, for a test that ends it itself.
    pub fn take(&mut self) -> Session {
        self.session.take().unwrap()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.model.let_go();
        // Unmounts, ends it and joins its threads.
        drop(self.session.take());
        // A test that ended its session itself and failed before it had.
        let _ = std::process::Command::new("umount").arg("-l").arg(self.folder.path()).output();
    }
}

pub fn options(point: &Path) -> Options {
    Options { threads: 2, ..Options::new("model", point) }
}

/// Whether something of ours is mounted there; asks no file system.
pub fn is_mounted(point: &Path) -> bool {
    row(point).is_some()
}

/// Its row of /proc/self/mounts.
pub fn row(point: &Path) -> Option<String> {
    let point = format!(" {} ", point.canonicalize().unwrap().display());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().find(|line| line.contains(&point)).map(str::to_owned)
}

/// Asks again until there is an answer.
#[track_caller]
pub fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let start = std::time::Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed().as_secs() < 60, "it never came to be");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
