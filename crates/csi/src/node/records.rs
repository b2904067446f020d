//! What a plugin must know after it was killed: a file for each volume, without secrets.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tonic::Code;

use crate::link::Failure;
use crate::volume::Volume;

/// How long the plugin before may take to end.
const ALONE_WITHIN: Duration = Duration::from_secs(10);

/// A volume of this node, and where pods see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub volume_id: String,
    /// The name of its mount.
    pub key: String,
    pub volume: Volume,
    pub memory_bytes: u64,
    /// Of one with an engine of its own: the name of that engine, which no other has had.
    pub alone: Option<String>,
    /// Of one with an index: the name of that on this node, which no other has had.
    #[serde(default)]
    pub index: Option<String>,
    pub targets: Vec<Target>,
}

impl Record {
    /// Which engines may serve it: the node's, or one of its own.
    pub fn only(&self) -> Option<&str> {
        self.alone.as_deref()
    }
}

/// A place where a pod sees a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub path: PathBuf,
    pub read_only: bool,
    /// No other pod may have the volume.
    pub is_single: bool,
    /// The access mode allows no writer.
    pub readers_only: bool,
}

/// The folder of the files.
#[derive(Debug)]
pub struct Records(PathBuf);

impl Records {
    /// # Errors
    /// The folder cannot be made.
    pub fn new(folder: &Path) -> io::Result<Records> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        Ok(Records(folder.to_owned()))
    }

    /// All that can be read, and what is wrong with the others.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn load(&self) -> io::Result<(Vec<Record>, Vec<String>)> {
        let (mut records, mut notes) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let read = fs::read(&path).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
            match read {
                Ok(record) => records.push(record),
                Err(error) => notes.push(format!("{}: {}", path.display(), flatout_engine::plain(&error))),
            }
        }
        Ok((records, notes))
    }

    /// Whole at any moment.
    ///
    /// # Errors
    /// The system's.
    pub fn save(&self, record: &Record) -> io::Result<()> {
        let (path, new) = (self.path(&record.key), self.0.join(format!("{}.new", record.key)));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        file.sync_all()?;
        fs::rename(&new, &path)
    }

    pub fn remove(&self, key: &str) {
        // What is left of it is looked at when the plugin is started again.
        let _ = fs::remove_file(self.path(key));
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.json"))
    }
}

/// Waits a little for the plugin before to be gone.
pub fn only_one(path: &Path) -> Result<File, Failure> {
    let refused = |error| Failure::internal(&path.display().to_string(), &error);
    let file = File::options().create(true).truncate(false).write(true).open(path).map_err(refused)?;
    let since = Instant::now();
    while file.try_lock().is_err() {
        if since.elapsed() > ALONE_WITHIN {
            let why = format!("{}: another plugin of this node runs still", path.display());
            return Err(Failure::new(Code::FailedPrecondition, why));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Identity;

    #[test]
    fn records_outlive_the_plugin() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(&folder.path().join("volumes")).unwrap();
        let volume = Volume {
            source: "s3://models/".into(),
            knobs: vec![("uid".into(), "0".into())],
            system: Vec::new(),
            no_permissions: false,
            read_only: true,
            identity: Identity::Driver,
            is_isolated: false,
            index: None,
        };
        let path = "/var/lib/kubelet/pods/1/volumes/mount".into();
        let target = Target { path, read_only: true, is_single: false, readers_only: true };
        let record = Record {
            volume_id: "models".into(),
            key: "0123".into(),
            volume,
            memory_bytes: 1 << 28,
            alone: None,
            index: None,
            targets: vec![target],
        };
        records.save(&record).unwrap();
        fs::write(folder.path().join("volumes/broken.json"), "{").unwrap();
        fs::write(folder.path().join("volumes/0124.new"), "{").unwrap();
        let (read, notes) = records.load().unwrap();
        assert_eq!(read, [record]);
        assert!(notes.len() == 1 && notes[0].contains("broken.json"), "{notes:?}");
        records.remove("0123");
        assert!(records.load().unwrap().0.is_empty());
    }
}
