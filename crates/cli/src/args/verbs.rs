//! The arguments of commands that move, delete, count and describe.

use std::time::Duration;

use clap::{ValueEnum, ValueHint};

use super::{Cp, StoredAs};
use crate::knobs::Knobs;
use crate::report::ReportTo;
use crate::select::Filters;
use crate::stored_as::Symlinks;

#[derive(Debug, clap::Args)]
pub struct Mv {
    /// A file, s3://BUCKET/KEY or oss://BUCKET/KEY
    #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub source: String,
    /// A file or a folder, s3://BUCKET/KEY or oss://BUCKET/KEY; one side is a URL
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub target: String,
    /// Leave a target that exists as it is, and the source, too
    #[arg(long, short, visible_alias = "if-none-match")]
    pub no_clobber: bool,
    /// Only say what would be copied, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub stored_as: StoredAs,
    #[command(flatten)]
    pub report: ReportTo,
    #[command(flatten)]
    pub knobs: Knobs,
}

impl Mv {
    /// The copy that comes first.
    pub fn copy(&self) -> Cp {
        Cp {
            symlinks: Symlinks::default(),
            source: self.source.clone(),
            more: Vec::new(),
            target: self.target.clone(),
            range: None,
            version_id: None,
            recursive: false,
            no_clobber: self.no_clobber,
            dry_run: self.dry_run,
            verbose: false,
            filters: Filters::default(),
            stored_as: self.stored_as.clone(),
            report: ReportTo::default(),
            knobs: self.knobs.clone(),
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct Rm {
    /// s3://BUCKET/KEY or oss://BUCKET/KEY; a pattern of keys, as in 's3://BUCKET/FOLDER/*.tmp'; with -r a
    /// folder, as s3://BUCKET/FOLDER
    #[arg(value_name = "URL", required = true, value_hint = ValueHint::Url)]
    pub sources: Vec<String>,
    /// Everything below a folder of a bucket; with a pattern, also what lies in folders that match
    #[arg(long, short)]
    pub recursive: bool,
    /// Only this version of the object, for good; without it a bucket that keeps versions hides the newest
    #[arg(long, value_name = "ID", conflicts_with = "recursive")]
    pub version_id: Option<String>,
    /// Let a whole bucket be emptied: without it -r and patterns need something before the first wildcard
    #[arg(long)]
    pub all: bool,
    /// Only print what would be deleted, and delete nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print every object that is deleted, and every error; without it the first error of each kind is
    /// printed, and the rest are counted
    #[arg(long)]
    pub verbose: bool,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub report: ReportTo,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Sync {
    /// A folder, or s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX]
    #[arg(value_name = "SRC", value_hint = ValueHint::AnyPath)]
    pub source: String,
    /// A folder, or s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX]; one side is a URL
    #[arg(value_name = "DST", value_hint = ValueHint::AnyPath)]
    pub target: String,
    /// Delete what only DST has, last, and only if everything could be read and copied
    #[arg(long, help_heading = "Deletion")]
    pub delete: bool,
    /// Delete nothing where more than N would be deleted
    #[arg(long, value_name = "N", requires = "delete", help_heading = "Deletion")]
    pub max_delete: Option<u64>,
    /// Also delete what --include and --exclude leave out
    #[arg(long, requires = "delete", help_heading = "Deletion")]
    pub delete_excluded: bool,
    /// Copy only where sizes differ
    #[arg(long, conflicts_with_all = ["exact_timestamps", "checksum"], help_heading = "Comparison")]
    pub size_only: bool,
    /// Copy where sizes or times differ at all, where the time of the file that an object was made of counts,
    /// too: an upload asks for that of each object that is there
    #[arg(long, conflicts_with = "checksum", help_heading = "Comparison")]
    pub exact_timestamps: bool,
    /// Copy where sizes or checksums differ: those that the origin states, and those of files, which are read
    /// once and remembered. What has none to compare is compared by time, and counted
    #[arg(long, help_heading = "Comparison")]
    pub checksum: bool,
    /// Empty folders belong to the tree: an object whose key ends in '/' stands for one, and with --delete
    /// folders that become empty go
    #[arg(long)]
    pub empty_folders: bool,
    /// Only print what would be copied and deleted, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print every deletion, error and warning; without it the first of each kind is printed, and the rest
    /// are counted
    #[arg(long)]
    pub verbose: bool,
    /// Of an upload, symbolic links: follow them, skip them with a warning, or refuse them with an error each
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
pub struct Mb {
    /// s3://BUCKET or oss://BUCKET
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub bucket: String,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Rb {
    /// s3://BUCKET or oss://BUCKET
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub bucket: String,
    /// Delete its objects and unfinished uploads first, after saying how many there are
    #[arg(long)]
    pub force: bool,
    /// Do not ask whether to go on
    #[arg(long, short, requires = "force")]
    pub yes: bool,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Presign {
    /// s3://BUCKET/KEY or oss://BUCKET/KEY
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub source: String,
    /// A URL that writes the object, by PUT
    #[arg(long)]
    pub put: bool,
    /// For how long it works, at most 7d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = age)]
    pub expires: Duration,
    /// Of this version of the object
    #[arg(long, value_name = "ID", conflicts_with = "put")]
    pub version_id: Option<String>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Du {
    /// s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX]; a pattern of keys, as in 's3://BUCKET/*.txt'
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub location: String,
    /// A line for every folder below, too; with --by-prefix no further than that
    #[arg(long, short)]
    pub recursive: bool,
    /// A line for the folders below, down to N levels
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub by_prefix: Option<u32>,
    /// Sizes in bytes
    #[arg(long, short)]
    pub bytes: bool,
    #[command(flatten)]
    pub filters: Filters,
    #[command(flatten)]
    pub knobs: Knobs,
}

/// What `hash` computes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HashName {
    Crc64nvme,
    Crc64xz,
    Crc32c,
    Md5,
}

#[derive(Debug, clap::Args)]
pub struct Hash {
    /// Files, - for standard input, and objects: s3://BUCKET/KEY, oss://BUCKET/KEY or
    /// http[s]://HOST[:PORT]/PATH
    #[arg(value_name = "FILE|URL", required = true, value_hint = ValueHint::AnyPath)]
    pub sources: Vec<String>,
    /// Only these, with commas between: crc64nvme (S3), crc64xz (OSS), crc32c, md5
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', hide_possible_values = true)]
    pub algorithm: Vec<HashName>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct Uploads {
    /// s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX]
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub location: String,
    /// Abort them: the origin deletes their parts, and one that is running fails. For a whole bucket,
    /// --older-than is required
    #[arg(long)]
    pub abort: bool,
    /// Only uploads that were begun longer ago, as in 7d, 12h, and whose age the origin states; 0s is all
    #[arg(long, value_name = "TIME", value_parser = age)]
    pub older_than: Option<Duration>,
    #[command(flatten)]
    pub knobs: Knobs,
}

/// A duration that may be days or weeks.
fn age(text: &str) -> Result<Duration, String> {
    let days = [('d', 1), ('w', 7)].into_iter().find_map(|(unit, days)| {
        let number: u64 = text.trim().strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(days * 86_400)
    });
    match days {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => super::duration(text).map_err(|_| "write a number with s, m, h, d or w, as in 1h, 7d".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_may_be_days() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(age(text).ok().map(|age| age.as_secs()), expected, "{text}");
        };
        check("7d", Some(604_800));
        check("2w", Some(1_209_600));
        check("1h", Some(3_600));
        check("90s", Some(90));
        check("0d", Some(0));
        check("d", None);
        check("-1d", None);
        check("7", None);
        check("1.5d", None);
        check("99999999999999999999d", None);
        check("9999999999999999d", None);
    }
}
