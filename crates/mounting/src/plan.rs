//! What is to be mounted, where and how: decided before anything is done.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use flatout_engine::{Dialect, Error, ErrorKind};
use flatout_mount::MountPoint;
use flatout_settings::Settings;
use flatout_tree::TreeRoot;
use flatout_wire::location::Location;

use crate::options::MountOptions;

/// A mount, decided.
#[derive(Clone)]
pub struct MountPlan {
    pub source: MountSource,
    /// Without links and dots.
    pub mount_point: PathBuf,
    pub settings: Settings,
    /// Options that mount(2) has a flag for, and `nonempty`.
    pub system: Vec<String>,
    /// The kernel compares the permission bits with whoever asks.
    pub default_permissions: bool,
    /// For what must be known to the next mount if this one is killed.
    pub state_folder: Option<PathBuf>,
    /// The process that keeps the mount if this one dies; 0 for none.
    pub supervisor: Arc<AtomicU32>,
    /// Renames that a killed mount has left are being ended.
    pub(crate) is_ending_renames: Arc<AtomicBool>,
}

impl MountPlan {
    /// The index whose image is mounted.
    pub fn image(&self) -> Option<&IndexRoot> {
        match &self.source.root {
            MountRoot::Index(index) if index.is_image => Some(index),
            MountRoot::Index(_) | MountRoot::Tree(_) => None,
        }
    }

    /// Of an index that another process serves by an image, or as a tree.
    pub fn serve_as_before(&mut self, is_image: bool) {
        if let MountRoot::Index(index) = &mut self.source.root {
            index.is_image = is_image;
        }
    }

    /// The source and its origin, as the next mount of both has them.
    pub(crate) fn identity(&self) -> (String, String) {
        let settings = &self.settings;
        let origin = [&settings.endpoint_url, &settings.oss_endpoint].map(|url| url.as_deref().unwrap_or(""));
        (self.source.to_string(), origin.join(" "))
    }
}

impl MountPlan {
    /// With the options that were read; their knobs are among `settings` already.
    ///
    /// # Errors
    /// The mount point is no folder to mount on.
    pub fn new(
        source: MountSource,
        mount_point: &Path,
        settings: Settings,
        options: &MountOptions,
    ) -> Result<MountPlan, Error> {
        let mount_point = MountPoint::look(mount_point, options.nonempty)?.path().to_owned();
        Ok(MountPlan::on(source, mount_point, settings, options))
    }

    /// As [`MountPlan::new`], of a mount that stands: its mount point is not looked at, which may wait for
    /// whoever is to serve it.
    pub fn of_standing(
        source: MountSource,
        mount_point: &Path,
        settings: Settings,
        options: &MountOptions,
    ) -> MountPlan {
        MountPlan::on(source, mount_point.to_owned(), settings, options)
    }

    fn on(
        source: MountSource,
        mount_point: PathBuf,
        settings: Settings,
        options: &MountOptions,
    ) -> MountPlan {
        let nonempty = options.nonempty.then(|| "nonempty".to_owned());
        let is_index = matches!(source.root, MountRoot::Index(_));
        let read_only = (settings.mount.read_only || is_index).then(|| "ro".to_owned());
        MountPlan {
            source,
            mount_point,
            settings,
            system: options.system.iter().cloned().chain(nonempty).chain(read_only).collect(),
            default_permissions: !options.no_permissions,
            state_folder: None,
            supervisor: Arc::default(),
            is_ending_renames: Arc::default(),
        }
    }
}

/// Every bucket, a bucket, what lies below a folder of it, or an index. Displays as people read it, with
/// secrets masked.
#[derive(Clone, Debug)]
pub struct MountSource {
    pub root: MountRoot,
    pub dialect: Dialect,
    shown: String,
}

/// What the root of a mount shows.
#[derive(Clone, Debug)]
pub enum MountRoot {
    Tree(TreeRoot),
    Index(IndexRoot),
}

/// The files of an index.
#[derive(Clone, Debug)]
pub struct IndexRoot {
    pub path: PathBuf,
    /// EROFS shows them; otherwise FUSE does.
    pub is_image: bool,
    /// Content is in the page cache of EROFS alone, and read as programs ask for it: for files that are read
    /// whole or here and there. Otherwise the kernel reads ahead, past the end of small files, too.
    pub is_direct: bool,
}

impl MountSource {
    /// The files of an index, whose source has this dialect.
    pub fn index(index: IndexRoot, dialect: Dialect) -> MountSource {
        let shown = index.path.display().to_string();
        MountSource { root: MountRoot::Index(index), dialect, shown }
    }

    /// Every bucket of the account.
    pub fn buckets(dialect: Dialect) -> MountSource {
        let scheme = if dialect == Dialect::Oss { "oss://" } else { "s3://" };
        MountSource { root: MountRoot::Tree(TreeRoot::Buckets(dialect)), dialect, shown: scheme.to_owned() }
    }

    /// A bucket, or what lies below a prefix. A prefix is a folder, with or without a slash at its end.
    ///
    /// # Errors
    /// A web server has no listing.
    pub fn under(location: &Location) -> Result<MountSource, Error> {
        let Some((_, key)) = location.in_bucket() else {
            return Err(Error::new(ErrorKind::Usage, "a web server has no listing to make folders of")
                .during("mount", location)
                .with_hint("a mount shows s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX]"));
        };
        let folder = match key {
            "" => String::new(),
            key if key.ends_with('/') => key.to_owned(),
            key => format!("{key}/"),
        };
        let location = location.with_key(folder).expect("what is in a bucket takes another key");
        let (dialect, shown) = (Dialect::of(&location), location.to_string());
        Ok(MountSource { root: MountRoot::Tree(TreeRoot::Under(location)), dialect, shown })
    }
}

impl fmt::Display for MountSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_folder_of_a_bucket_or_all_buckets() {
        let under = |typed: &str| MountSource::under(&Location::parse(typed).unwrap());
        let check = |typed: &str, shown: &str| {
            let source = under(typed).unwrap();
            assert_eq!(source.to_string(), shown);
            assert!(
                matches!(source.root, MountRoot::Tree(TreeRoot::Under(at)) if at.to_string() == shown),
                "{typed}"
            );
        };
        check("s3://models", "s3://models");
        check("s3://models/llama", "s3://models/llama/");
        check("oss://models/llama/", "oss://models/llama/");
        for (dialect, shown) in [(Dialect::S3, "s3://"), (Dialect::Oss, "oss://")] {
            let source = MountSource::buckets(dialect);
            assert_eq!(source.to_string(), shown);
            assert!(matches!(source.root, MountRoot::Tree(TreeRoot::Buckets(of)) if of == dialect));
        }
        let web = under("http://host/x").unwrap_err();
        assert!(web.to_string().starts_with("mount: http://host/x: a web server"), "{web}");
    }
}
