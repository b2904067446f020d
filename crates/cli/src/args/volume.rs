//! `flatout volume`: its commands and their flags; and what both sorts of mounts have in common.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Subcommand, ValueHint};
use flatout_settings::parse_metrics_address;

use super::Mount;
use crate::help;
use crate::knobs::{Knobs, MountKnobs};

#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Write an index of a bucket or of what lies under a prefix: names, sizes, times, ETags, no data
    #[command(after_help = help::VOLUME_BUILD)]
    Build(VolumeBuild),
    /// Show the files of an index as a read-only folder
    #[command(after_help = help::VOLUME_MOUNT)]
    Mount(Box<VolumeMount>),
    /// List the files of an index
    #[command(after_help = help::VOLUME_LS)]
    Ls(VolumeLs),
    /// Show what an index has, and how large it is
    #[command(after_help = help::VOLUME_INFO)]
    Info(VolumeInfo),
    /// Compare all of an index with its checksums; and its objects with those of the origin
    #[command(after_help = help::VOLUME_VERIFY)]
    Verify(VolumeVerify),
    /// List again, and write a new index in place of the old one; mounts of it show the new files
    #[command(after_help = help::VOLUME_UPDATE)]
    Update(VolumeUpdate),
}

/// How a mount runs.
#[derive(Clone, Debug, clap::Args)]
pub struct Serving {
    /// Stay in the foreground until unmounted; ctrl-C or SIGTERM unmounts
    #[arg(long, short, help_heading = "Mounting")]
    pub foreground: bool,
    /// Keep the mount in a small process of its own: where the one that serves it dies, another goes on, and
    /// readers wait for a moment
    #[arg(long, help_heading = "Mounting")]
    pub supervise: bool,
    /// Serve the numbers to Prometheus at http://ADDR:PORT/metrics; a port alone is on 127.0.0.1
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = parse_metrics_address, help_heading = "Mounting")]
    pub metrics: Option<SocketAddr>,
    /// Where what goes wrong is written when in the background; without it a file of its own in the user's
    /// state folder
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Mounting")]
    pub log: Option<PathBuf>,
    /// Write the numbers as JSON to this file at the end, and at each SIGUSR1
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Mounting")]
    pub stats: Option<PathBuf>,
    /// Is the process in the background, and tells the one that started it on standard output how it went
    #[arg(long = "__reports", hide = true)]
    pub reports: bool,
    /// Serves a mount that a supervisor keeps, which is at the other end of standard input
    #[arg(long = "__serves", hide = true)]
    pub serves: bool,
    /// Supervises a mount that a process serves, which is at the other end of standard input
    #[arg(long = "__adopts", hide = true)]
    pub adopts: bool,
}

/// How the files of an index are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownIndex {
    pub path: PathBuf,
    /// By FUSE, also where EROFS could.
    pub by_fuse: bool,
    /// The kernel reads ahead.
    pub reads_ahead: bool,
}

#[derive(Debug, clap::Args)]
pub struct VolumeBuild {
    /// s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX]
    #[arg(value_name = "SOURCE", value_hint = ValueHint::Url)]
    pub source: String,
    /// A file, or s3://BUCKET/KEY or oss://BUCKET/KEY to keep it beside the objects
    #[arg(value_name = "INDEX", value_hint = ValueHint::FilePath)]
    pub index: String,
    #[command(flatten)]
    pub from: IndexedFrom,
    #[command(flatten)]
    pub knobs: Knobs,
}

/// Where the names of an index come from.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct IndexedFrom {
    /// Take names, sizes, times and ETags from a bucket inventory (CSV) in place of a listing: its
    /// manifest.json, a file or a URL
    #[arg(long, value_name = "MANIFEST", value_hint = ValueHint::FilePath, conflicts_with = "names", help_heading = "Names")]
    pub inventory: Option<String>,
    /// Take names from a file, a key a line, from SOURCE on; - is standard input. Each object is asked for
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Names")]
    pub names: Option<PathBuf>,
    /// Write the keys that no file can stand for to this file, a key and the reason a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Names")]
    pub left_out: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub struct VolumeMount {
    /// An index; or s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX], whose index is built first and kept in the
    /// cache folder
    #[arg(value_name = "INDEX", value_hint = ValueHint::FilePath)]
    pub index: String,
    /// An empty folder
    #[arg(value_name = "MOUNT_POINT", value_hint = ValueHint::DirPath)]
    pub mount_point: PathBuf,
    /// Show the files by FUSE, also where EROFS could: names cost more
    #[arg(long, help_heading = "Mounting")]
    pub fuse: bool,
    /// Have the kernel read ahead, for files that are read from end to end: large ones come faster, and
    /// small ones cost more
    #[arg(long, help_heading = "Mounting", conflicts_with = "fuse")]
    pub read_ahead: bool,
    /// mount(8)'s options, with commas between: noexec, nonempty
    #[arg(short = 'o', value_name = "OPTION,...", value_hint = ValueHint::Other, help_heading = "Mounting")]
    pub options: Vec<String>,
    /// The file of the index, for processes that this one starts
    #[arg(long = "__index", hide = true)]
    pub path: Option<PathBuf>,
    #[command(flatten)]
    pub serving: Serving,
    #[command(flatten)]
    pub knobs: Knobs,
}

impl VolumeMount {
    /// The mount that it is, of the index at `path`.
    pub fn mount(&self, path: PathBuf) -> Mount {
        Mount {
            source: path.display().to_string(),
            mount_point: Some(self.mount_point.clone()),
            options: self.options.clone(),
            upgrade: false,
            dry_run: false,
            recover: false,
            last_counts: false,
            is_silent: false,
            index: Some(ShownIndex { path, by_fuse: self.fuse, reads_ahead: self.read_ahead }),
            serving: self.serving.clone(),
            knobs: MountKnobs::from(self.knobs.clone()),
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct VolumeLs {
    /// A file, or the URL of one
    #[arg(value_name = "INDEX", value_hint = ValueHint::FilePath)]
    pub index: String,
    /// A folder in it
    #[arg(value_name = "FOLDER", default_value = "")]
    pub folder: String,
    /// With size and time
    #[arg(long, short)]
    pub long: bool,
    /// Sizes with units, as in 1.5MiB; implies -l
    #[arg(long, short = 'H')]
    pub human_readable: bool,
    /// Everything below the folder
    #[arg(long, short)]
    pub recursive: bool,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct VolumeInfo {
    /// A file, or the URL of one; or a prefix, whose index is built first and kept in the cache folder
    #[arg(value_name = "INDEX", value_hint = ValueHint::FilePath)]
    pub index: String,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct VolumeVerify {
    /// A file, or the URL of one
    #[arg(value_name = "INDEX", value_hint = ValueHint::FilePath)]
    pub index: String,
    /// List the origin, and name what is new, changed or gone; exit code 2 if anything is
    #[arg(long)]
    pub objects: bool,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct VolumeUpdate {
    /// A file, or the URL of one
    #[arg(value_name = "INDEX", value_hint = ValueHint::FilePath)]
    pub index: String,
    #[command(flatten)]
    pub from: IndexedFrom,
    #[command(flatten)]
    pub knobs: Knobs,
}
