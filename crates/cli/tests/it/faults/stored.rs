//! The cells of uploads: what is sent, and what the origin has in the end.

use std::fs::{self, File};
use std::path::PathBuf;

use super::cell::{BUCKET, Cell, Scene, ensure, files};
use super::log::Log;
use super::run::Run;
use super::table::{Dialect, Seen, Work};
use crate::folder::EARLIER;

/// What the error says where the origin refused even to delete the parts.
const LEFT_PARTS: &str = "parts that were sent could not be deleted";

impl Cell<'_> {
    /// Writes what is sent, and into the bucket what is there before; the input of the run, where it has one.
    pub fn prepare_upload(&self, scene: &Scene) -> Option<File> {
        if !self.work.sends() {
            return None;
        }
        let folder = scene.folder.path().join("sent");
        fs::create_dir(&folder).unwrap();
        fs::create_dir(scene.root.path().join(BUCKET)).unwrap();
        for (key, bytes) in self.objects() {
            fs::write(folder.join(last(&key)), self.bytes(&key, bytes)).unwrap();
            if self.has_earlier() {
                let path = at_origin(scene, &key);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, EARLIER).unwrap();
            }
        }
        (self.work == Work::SendStream).then(|| File::open(folder.join("object")).unwrap())
    }

    /// Objects of these keys are there before: the half of the cells that has them tells that they stay, the
    /// other that nothing appears.
    fn has_earlier(&self) -> bool {
        self.tls.is_none()
    }

    /// Each object is whole, or as it was before; no upload is left that the client could have ended, or it
    /// says so.
    pub fn judge_stored(&self, run: &Run, log: &Log, scene: &Scene) -> Result<(), String> {
        let all = self.objects();
        let stored = |key: &str| log.stored(key);
        let end = match self.seen() {
            Seen::Whole => None,
            Seen::Fails(end) => Some(end),
            Seen::WhenHit(end) => all.iter().any(|(key, _)| !stored(key)).then_some(end),
            Seen::Nothing(_) => unreachable!("it is not run"),
        };
        match &end {
            None => {
                ensure(run.code == Some(0) && run.stderr.is_empty(), || "is no clean end".into())?;
                log.unexplained(self.row.spare).map_or(Ok(()), Err)?;
            }
            Some(end) => self.judge_end(end, run, log)?,
        }
        let mut whole = 0;
        for (key, bytes) in &all {
            let found = fs::read(at_origin(scene, key)).ok();
            let sent = self.bytes(key, *bytes);
            let is_whole = found.as_ref() == Some(&sent);
            whole += usize::from(is_whole);
            let earlier = self.has_earlier().then(|| EARLIER.to_vec());
            let may_be_wrong = end.is_some() && self.row.is_stored_wrong(self.dialect);
            let is_right = match (end.is_none() || stored(key), may_be_wrong) {
                (true, _) => is_whole,
                (false, true) => {
                    found.as_ref().is_some_and(|found| found.len() == sent.len()) || found == earlier
                }
                (false, false) => found == earlier,
            };
            ensure(is_right, || {
                format!("{key} at the origin is {:?} bytes", found.map(|found| found.len()))
            })?;
        }
        ensure(end.is_none() || whole < all.len(), || "failed, and everything is there".into())?;
        let count = files(&scene.root.path().join(BUCKET), "").len();
        ensure(count <= all.len(), || format!("there are {count} files in the bucket"))?;
        let (left, lost) = (unfinished(scene), log.lost_uploads());
        let says = run.stderr.contains(LEFT_PARTS);
        ensure(if says { left > 0 } else { left <= lost }, || {
            format!(
                "{left} uploads are left, {lost} answers to their beginning were lost, and it says so: {says}"
            )
        })
    }
}

fn last(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or_default()
}

fn at_origin(scene: &Scene, key: &str) -> PathBuf {
    scene.root.path().join(BUCKET).join(key)
}

/// Uploads that were begun and neither completed nor aborted.
fn unfinished(scene: &Scene) -> usize {
    let below = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let uploads = below(scene.root.path().join(".flatout/uploads")).flat_map(below);
    uploads.filter(|path| path.is_dir()).count()
}

impl super::table::Row {
    /// OSS compares no checksum before it stores: a bit that is always wrong is noticed when the object is
    /// there.
    fn is_stored_wrong(&self, dialect: Dialect) -> bool {
        self.name.starts_with("put-flip") && dialect == Dialect::Oss
    }
}
