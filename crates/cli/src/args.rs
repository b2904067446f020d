//! The command line as types: commands, their own flags, and the help that comes with them.

mod bench;
mod csi;
mod run;
mod verbs;
mod volume;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use flatout_server::{Listen, Rates};
use flatout_wire::range::Span;

pub use self::bench::{Bench, BenchDemo, BenchGet, BenchPeer, BenchPut, BenchSweep};
pub use self::csi::{Csi, CsiController, CsiEngine, CsiNode, CsiPlugin};
pub use self::run::Run;
pub use self::verbs::{Du, Hash, HashName, Mb, Mv, Presign, Rb, Rm, Sync, Uploads};
pub use self::volume::{
    IndexedFrom, Serving, ShownIndex, Volume, VolumeBuild, VolumeInfo, VolumeLs, VolumeMount, VolumeUpdate,
    VolumeVerify,
};
use crate::bench::ReadFiles;
use crate::help;
use crate::knobs::{Knobs, MountKnobs};
use crate::report::ReportTo;
use crate::select::Filters;
use crate::stored_as::{StoredAs, Symlinks};
use crate::weather::{self, Synthetic, Weather};

#[derive(Debug, Parser)]
#[command(
    name = "flatout",
    version,
    about = "Move bytes between object storage and compute, as fast as machine and network allow",
    after_help = help::TOP,
    max_term_width = 110
)]
pub struct Line {
    #[command(subcommand)]
    pub command: Command,

    /// Newline-delimited JSON events (docs/json.md) instead of text; on standard error where standard output
    /// carries an object
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,

    /// Say nothing but errors
    #[arg(long, short, global = true, help_heading = "Output")]
    pub quiet: bool,

    /// No progress bar (there is none anyway when standard error is not a terminal)
    #[arg(long, global = true, help_heading = "Output")]
    pub no_progress: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copy objects: one to a file, into a folder or to standard output; a folder or a pattern of them into a
    /// folder; a file or standard input to an object; an object to another
    #[command(after_help = help::CP)]
    Cp(Box<Cp>),
    /// Write standard input to an object
    #[command(after_help = help::PIPE)]
    Pipe(Box<Pipe>),
    /// Write objects to standard output, one after the other
    #[command(after_help = help::CAT)]
    Cat(Cat),
    /// List a bucket or what lies under a prefix; without a URL, the buckets
    #[command(after_help = help::LS)]
    Ls(Ls),
    /// Show what the origin says about an object, without fetching it, or about a bucket
    #[command(after_help = help::STAT)]
    Stat(Stat),
    /// Copy an object and delete its source, once the copy is there and confirmed
    #[command(after_help = help::MV)]
    Mv(Box<Mv>),
    /// Make a bucket's folder like a local one, or the other way round, or like another bucket's
    #[command(after_help = help::SYNC)]
    Sync(Box<Sync>),
    /// Delete objects: single ones, the matches of a pattern, or everything below a prefix
    #[command(after_help = help::RM)]
    Rm(Rm),
    /// Make a bucket
    #[command(after_help = help::MB)]
    Mb(Mb),
    /// Delete a bucket
    #[command(after_help = help::RB)]
    Rb(Rb),
    /// Print a URL by which an object can be read, or written, without keys for a while
    #[command(after_help = help::PRESIGN)]
    Presign(Presign),
    /// Count objects and bytes below a prefix, or those that match a pattern
    #[command(after_help = help::DU)]
    Du(Du),
    /// Show checksums: of files by reading them, of objects as the origin states them
    #[command(after_help = help::HASH)]
    Hash(Hash),
    /// List unfinished uploads, whose parts take space, and abort them
    #[command(after_help = help::UPLOADS)]
    Uploads(Uploads),
    /// Run many commands in one process, each a line of a file: thousands of cp, mv and rm share connections
    #[command(after_help = help::RUN)]
    Run(Box<Run>),
    /// Show a bucket as a folder to read and write, at the speed of the link
    #[command(after_help = help::MOUNT)]
    Mount(Box<Mount>),
    /// End a mount, or clear what one that died has left
    #[command(after_help = help::UMOUNT)]
    Umount(Umount),
    /// Index millions of small objects once, and show them as a read-only folder whose names cost nothing
    #[command(subcommand, after_help = help::VOLUME, disable_help_subcommand = true)]
    Volume(Volume),
    /// Show what the mounts of this machine are doing, live
    #[command(after_help = help::TOP_MOUNTS)]
    Top(Top),
    /// Serve S3, OSS and plain HTTP from a folder, from memory or made up: an origin for development and
    /// measurement
    #[command(after_help = help::SERVE)]
    Serve(Box<Serve>),
    /// Be a part of the Kubernetes driver, which shows buckets to pods as volumes
    #[command(subcommand, after_help = help::CSI, disable_help_subcommand = true)]
    Csi(Csi),
    /// Measure throughput, CPU and memory, beside the floor: what plain sockets cost on this machine
    #[command(subcommand, after_help = help::BENCH, disable_help_subcommand = true)]
    Bench(Bench),
    /// Show what is set, and which flag, variable or file says so
    #[command(subcommand, after_help = help::CONFIG, disable_help_subcommand = true)]
    Config(Config),
    /// Examine this machine, its settings and keys, and with a URL the road to an origin: what limits speed,
    /// what to do
    #[command(after_help = help::DOCTOR)]
    Doctor(Doctor),
    /// Print the version; for a bug report with --verbose, which says how it was built, for what, and what is
    /// set
    Version(Version),
    /// Print the completions of a shell, to be put where it looks for them
    #[command(after_help = help::COMPLETIONS)]
    Completions(Completions),
    /// Print the manual page, or write those of all commands into a folder
    #[command(after_help = help::MAN)]
    Man(Man),
    /// One repetition of a measurement, asked for on standard input
    #[command(name = "__bench-child", hide = true)]
    BenchChild,
    /// Reads standard input and drops it
    #[command(name = "__drain", hide = true)]
    Drain,
    /// Reads files by many threads
    #[command(name = "__read", hide = true)]
    ReadFiles(ReadFiles),
}

impl Command {
    /// The file that gets its events, too.
    pub fn report(&self) -> Option<&Path> {
        let to = match self {
            Command::Cp(args) => &args.report,
            Command::Mv(args) => &args.report,
            Command::Sync(args) => &args.report,
            Command::Rm(args) => &args.report,
            Command::Run(args) => &args.report,
            _ => return None,
        };
        to.report.as_deref()
    }
}

#[derive(Clone, Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub struct Cp {
    /// To download: s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH; a pattern of keys, as in
    /// 's3://BUCKET/FOLDER/*.bin'; with -r a folder, as s3://BUCKET[/FOLDER]. To upload: a file, a pattern of
    /// files, a pipe, or - for standard input
    #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub source: String,
    /// More of them, each copied by itself, into a folder or below a prefix that ends in '/'; options stand
    /// before the first or behind DST
    #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub more: Vec<String>,
    /// To download: a file, a folder (existing, or ending in '/'), a pipe or a device such as /dev/null, or -
    /// for standard output. To upload, or to copy an object to another: s3://BUCKET/KEY or oss://BUCKET/KEY;
    /// a prefix that ends in '/', or a bucket, gets the source's name
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub target: String,
    /// Only these bytes, counted from 0: FIRST-LAST (both included), FIRST- to the end, or the last ones:
    /// -COUNT
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub range: Option<Span>,
    /// To download: this version of the object; without it the newest
    #[arg(long, value_name = "ID", conflicts_with = "recursive")]
    pub version_id: Option<String>,
    /// Everything below a folder of a bucket, into the folder DST; with a pattern, also what lies in folders
    /// that match; of an upload, every file below a folder, below the prefix DST
    #[arg(long, short, conflicts_with = "range")]
    pub recursive: bool,
    /// Skip objects whose file exists, whatever is in it; of an upload, leave an object that exists as it is
    #[arg(long, short, visible_alias = "if-none-match")]
    pub no_clobber: bool,
    /// Only say what would be copied, and copy nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print every error and warning of many objects; without it the first of each kind is printed, and the
    /// rest are counted
    #[arg(long)]
    pub verbose: bool,
    /// Of an upload with -r, symbolic links: follow them, skip them with a warning, or refuse them with an
    /// error each
    #[arg(
        long,
        value_enum,
        value_name = "HOW",
        default_value_t,
        hide_possible_values = true,
        help_heading = "Uploads"
    )]
    pub symlinks: Symlinks,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub stored_as: StoredAs,
    #[command(flatten)]
    pub report: ReportTo,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Pipe {
    /// s3://BUCKET/KEY or oss://BUCKET/KEY
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub target: String,
    /// Leave an object that exists as it is
    #[arg(long, short, visible_alias = "if-none-match")]
    pub no_clobber: bool,
    #[command(flatten)]
    pub stored_as: StoredAs,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Cat {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH; a pattern of keys, as in
    /// 's3://BUCKET/FOLDER/*.log'; with -r a folder, as s3://BUCKET[/FOLDER]
    #[arg(value_name = "URL", required = true, value_hint = ValueHint::Url)]
    pub sources: Vec<String>,
    /// Everything below a folder of a bucket, in the order of keys; with a pattern, also what lies in folders
    /// that match
    #[arg(long, short)]
    pub recursive: bool,
    /// This version of the object; without it the newest
    #[arg(long, value_name = "ID", conflicts_with = "recursive")]
    pub version_id: Option<String>,
    /// Only these bytes of each, counted from 0: FIRST-LAST (both included), FIRST- to the end, or the last
    /// ones: -COUNT
    #[arg(long, value_name = "RANGE", allow_hyphen_values = true)]
    pub range: Option<Span>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Ls {
    /// s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX]; a pattern of keys, as in 's3://BUCKET/*.bin'; s3:// (or
    /// nothing) and oss:// list the buckets
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub location: Option<String>,
    /// Show time and size too
    #[arg(long, short)]
    pub long: bool,
    /// Everything under the prefix, not only the next level
    #[arg(long, short)]
    pub recursive: bool,
    /// Sizes in KiB, MiB, GiB (implies --long)
    #[arg(long, short = 'H')]
    pub human_readable: bool,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Stat {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH; a bucket: s3://BUCKET or oss://BUCKET
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub source: String,
    /// This version of the object; without it the newest
    #[arg(long, value_name = "ID")]
    pub version_id: Option<String>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Mount {
    /// s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX]; s3:// and oss:// show every bucket as a folder
    #[arg(value_name = "SOURCE", value_hint = ValueHint::Url)]
    pub source: String,
    /// An empty folder, or /dev/fd/N for a descriptor of /dev/fuse that was mounted before
    #[arg(value_name = "MOUNT_POINT", value_hint = ValueHint::DirPath, required_unless_present_any = ["upgrade", "recover"])]
    pub mount_point: Option<PathBuf>,
    /// Options as in fstab, with commas between: mount(8)'s own, every knob (memory=1GiB,
    /// attribute_lifetime=10s), those of ossfs 2.0; may be given several times
    #[arg(short = 'o', value_name = "OPTION[=VALUE],...", value_hint = ValueHint::Other, help_heading = "Mounting")]
    pub options: Vec<String>,
    /// `flatout mount --upgrade MOUNT_POINT`: have this program go on with that supervised mount, in place of
    /// the one that serves it
    #[arg(long, help_heading = "Mounting", conflicts_with_all = ["mount_point", "options", "supervise", "foreground", "dry_run", "metrics", "log", "stats"])]
    pub upgrade: bool,
    /// Ask the origin whether it can be mounted, and mount nothing
    #[arg(long, help_heading = "Mounting")]
    pub dry_run: bool,
    /// `flatout mount SOURCE --staging DIR --recover`: upload what killed mounts of SOURCE have left
    /// there, and mount nothing. A mount with that folder does so, too
    #[arg(long, help_heading = "Mounting", conflicts_with_all = ["mount_point", "dry_run", "log"])]
    pub recover: bool,
    /// Of options that contradict each other the last one counts, as mount(8) has it
    #[arg(long = "__last-counts", hide = true)]
    pub last_counts: bool,
    /// Says nothing when all is well, as mount(8) has it
    #[arg(long = "__silent", hide = true)]
    pub is_silent: bool,
    /// The source is an index, which is shown so.
    #[arg(skip)]
    pub index: Option<ShownIndex>,
    #[command(flatten)]
    pub serving: Serving,
    #[command(flatten)]
    pub knobs: MountKnobs,
}

impl Mount {
    /// What a process that this one starts is told beside the command line.
    pub fn hidden(&self) -> Option<OsString> {
        let mut argument = OsString::from("--__index=");
        argument.push(&self.index.as_ref()?.path);
        Some(argument)
    }
}

#[derive(Debug, clap::Args)]
pub struct Umount {
    /// Where it is mounted
    #[arg(value_name = "MOUNT_POINT", value_hint = ValueHint::DirPath)]
    pub mount_point: PathBuf,
    /// Take it out of the tree at once, and end it when the last open file is closed
    #[arg(long, short)]
    pub lazy: bool,
}

#[derive(Debug, clap::Args)]
pub struct Top {
    /// The mount point, or the process id, of one mount; all of this user's without it
    #[arg(value_name = "MOUNT_POINT|PID", value_hint = ValueHint::DirPath)]
    pub which: Option<String>,
    /// Look once and end
    #[arg(long)]
    pub once: bool,
    /// How long between two looks
    #[arg(long, short = 'n', value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
}

#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Where to listen; may be given several times; port 0 takes a free one; ,rate=16MiB/s is for all
    /// connections there, ,dead never answers
    #[arg(long, value_name = "ADDR:PORT[,rate=RATE][,dead]", default_value = "127.0.0.1:9000", value_parser = weather::listen)]
    pub listen: Vec<Listen>,
    #[command(flatten)]
    pub store: Store,
    /// Let in only requests signed with this key
    #[arg(long, value_name = "AK", requires = "secret_key", value_parser = NonEmptyStringValueParser::new())]
    pub access_key: Option<String>,
    /// Its secret
    #[arg(long, value_name = "SK", requires = "access_key", value_parser = NonEmptyStringValueParser::new())]
    pub secret_key: Option<String>,
    /// Let anything in, unsigned too; http://ADDR:PORT/BUCKET/KEY is then a plain URL; to be said where no
    /// key is
    #[arg(long, conflicts_with_all = ["access_key", "secret_key"])]
    pub no_auth: bool,
    /// Wait this long before each answer
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub latency: Option<Duration>,
    /// At most this much through each connection, as in 16MiB/s
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub per_connection: Option<u64>,
    /// At most this much through all connections together; 64MiB/s@5s:1MiB/s is another rate from 5 s on
    #[arg(long, value_name = "RATE[@TIME:RATE]", value_parser = weather::rates)]
    pub total: Option<Rates>,
    /// Take writes and forget the bytes: HEAD, listings and deletions answer for the newest objects, as many
    /// as fit into 512 MiB of memory; reading one is refused (501); the store behind never changes. At the
    /// end it says how many bytes it took, and its own CPU time
    #[arg(long)]
    pub sink: bool,
    /// Speak TLS with a certificate made for this run; what clients have to trust is written to this file,
    /// for their --ca-bundle
    #[arg(long, value_name = "CA_FILE", conflicts_with_all = ["tls_cert", "tls_key"])]
    pub tls: Option<PathBuf>,
    /// Speak TLS with this certificate (PEM, its chain behind it)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    #[command(flatten)]
    pub weather: Weather,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Store {
    /// Serve this folder: each folder in it is a bucket
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Serve what was put, from memory
    #[arg(long)]
    pub memory: bool,
    /// Serve bytes computed from their offset; with *COUNT that many objects, numbered from 0 where %07d
    /// stands in KEY; may be given several times
    #[arg(long, value_name = "BUCKET/KEY=SIZE[*COUNT]", value_parser = weather::synthetic)]
    pub synthetic: Vec<Synthetic>,
}

#[derive(Debug, clap::Args)]
pub struct Completions {
    /// The shell to write them for
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

#[derive(Debug, clap::Args)]
pub struct Man {
    /// The folder that the pages go to, flatout.1 and one for each command; without it that of flatout is
    /// printed
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Every setting, its value and where it came from; secrets are masked
    #[command(after_help = help::CONFIG_SHOW)]
    Show(ConfigShow),
    /// Where the config file is, or would be
    Path,
}

#[derive(Debug, clap::Args)]
pub struct Version {
    /// Commit, compiler, libraries, machine, and the settings that are not as by default; secrets are masked
    #[arg(long, short)]
    pub verbose: bool,
}

#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// s3://BUCKET[/KEY], oss://BUCKET[/KEY] or http[s]://HOST[:PORT]/PATH; without it only providers of keys
    /// are asked
    #[arg(value_name = "URL")]
    pub url: Option<String>,
    /// Forget what earlier runs found of origins: how many parts in flight bring most, and how long they are
    #[arg(long, conflicts_with = "url")]
    pub forget: bool,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct ConfigShow {
    #[command(flatten)]
    pub knobs: MountKnobs,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    let within = (Duration::from_millis(100)..=Duration::from_secs(3_600)).contains(&interval);
    within.then_some(interval).ok_or_else(|| "write 100ms to 1h".to_owned())
}

pub fn size(text: &str) -> Result<u64, String> {
    flatout_settings::parse_size(text).map_err(|expected| format!("not {expected}"))
}

pub fn duration(text: &str) -> Result<Duration, String> {
    let ms = flatout_settings::parse_duration(text).map_err(|expected| format!("not {expected}"))?;
    Ok(Duration::from_millis(ms))
}

pub fn rate(text: &str) -> Result<u64, String> {
    let bytes = text
        .strip_suffix("/s")
        .ok_or_else(|| "not a rate: write bytes per second, as in 16MiB/s".to_owned())?;
    match size(bytes)? {
        0 => Err("a rate of nothing moves nothing: write bytes per second, as in 16MiB/s".into()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_tree_of_commands_is_sound() {
        Line::command().debug_assert();
    }

    #[test]
    fn values_with_units() {
        let check = |text: &str, expected: Option<u64>| assert_eq!(rate(text).ok(), expected, "{text}");
        check("16MiB/s", Some(16 << 20));
        check("90MB/s", Some(90_000_000));
        check("16MiB", None);
        check("0/s", None);
    }
}
