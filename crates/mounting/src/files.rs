//! What a mount serves: objects as a tree that asks for names, or an index that knows them all.

use std::fs::File;
use std::sync::Arc;

use flatout_engine::{Client, Error};
use flatout_mount::{IMAGE_NAME, Observer, Options, Session};
use flatout_tree::{Files, Tree, TreeStats};
use flatout_volume::{Image, Names, Objects, index_id};

use crate::session::StandingMount;
use crate::stats::IndexStats;

/// The files of a mount.
#[derive(Clone)]
pub enum MountedFiles {
    /// Names are asked for.
    Tree(Arc<Tree>),
    /// An index, as the image that EROFS mounts.
    Image(Arc<Image<Objects<File>>>),
    /// An index, as a tree: for kernels that cannot mount its image.
    Names(Arc<Names<File>>),
}

impl MountedFiles {
    /// Of an index.
    pub(crate) fn of_index(objects: Objects<File>, is_image: bool) -> MountedFiles {
        let objects = Arc::new(objects);
        match is_image {
            true => MountedFiles::Image(Arc::new(Image::new(objects, IMAGE_NAME))),
            false => MountedFiles::Names(Arc::new(Names::new(objects))),
        }
    }

    pub(crate) fn objects(&self) -> Option<&Arc<Objects<File>>> {
        match self {
            MountedFiles::Tree(_) => None,
            MountedFiles::Image(image) => Some(image.content()),
            MountedFiles::Names(names) => Some(names.objects()),
        }
    }

    /// What is said of the index.
    pub(crate) fn index_stats(&self) -> Option<IndexStats> {
        let index = self.objects()?.index();
        Some(IndexStats {
            id: index_id(index).unwrap_or_default(),
            of: index.source().to_owned(),
            files: index.totals().files,
            shown_by: if matches!(self, MountedFiles::Image(_)) { "erofs" } else { "fuse" }.to_owned(),
        })
    }

    /// Where names are asked for.
    pub fn tree(&self) -> Option<&Arc<Tree>> {
        match self {
            MountedFiles::Tree(tree) => Some(tree),
            MountedFiles::Image(_) | MountedFiles::Names(_) => None,
        }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        match self {
            MountedFiles::Tree(tree) => tree.client(),
            MountedFiles::Image(image) => image.content().client(),
            MountedFiles::Names(names) => names.objects().client(),
        }
    }

    pub(crate) fn stats(&self) -> TreeStats {
        match (self, self.objects()) {
            (MountedFiles::Tree(tree), _) => tree.stats(),
            (_, Some(objects)) => TreeStats {
                replaced: objects.replaced(),
                open_files_now: objects.open_now() as u64,
                ..TreeStats::default()
            },
            (_, None) => TreeStats::default(),
        }
    }

    /// From now on another process can go on with what the kernel knows of it. Of an index it knows nothing
    /// but the index.
    pub fn keep_in(&self, mount: &flatout_mount::LastingMount) {
        if let Some(tree) = self.tree() {
            tree.keep_in(mount.table());
        }
    }

    /// Files whose last bytes are in this process alone.
    pub(crate) fn unsent(&self) -> Vec<String> {
        self.tree().map(|tree| tree.unsent()).unwrap_or_default()
    }

    /// Mounts the folder and serves it, or serves the mount that is `standing`.
    pub(crate) fn serve(
        &self,
        options: &Options,
        observer: Observer,
        standing: Option<StandingMount>,
    ) -> Result<Session, Error> {
        match self {
            MountedFiles::Tree(files) => serve(files, options, observer, standing),
            MountedFiles::Image(files) => serve(files, options, observer, standing),
            MountedFiles::Names(files) => serve(files, options, observer, standing),
        }
    }
}

fn serve<F: Files>(
    files: &Arc<F>,
    options: &Options,
    observer: Observer,
    standing: Option<StandingMount>,
) -> Result<Session, Error> {
    match standing {
        None => flatout_mount::mount(options)?.serve(files.clone(), observer),
        Some(StandingMount { mount, takes_over }) => {
            mount.serve(files.clone(), options, observer, takes_over)
        }
    }
}
