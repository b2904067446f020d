//! What is to be mounted, where and how: from flags, options, variables and files, before anything is done.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use flatout_engine::Dialect;
use flatout_mount::MountPoint;
use flatout_settings::Settings;
use flatout_tree::TreeRoot;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::args::Mount;
use crate::commands::mount::options::{self, Chosen};
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::origin;

/// Everything decided.
pub struct Plan {
    pub root: TreeRoot,
    pub dialect: Dialect,
    /// As people read it; secrets masked.
    pub source: String,
    /// Without links and dots.
    pub mount_point: PathBuf,
    pub knobs: Knobs,
    pub settings: Settings,
    pub system: Vec<String>,
    pub default_permissions: bool,
    pub foreground: bool,
    pub silent: bool,
    pub metrics: Option<SocketAddr>,
    pub log: Option<PathBuf>,
    pub stats: Option<PathBuf>,
    pub notes: Vec<String>,
}

impl Plan {
    /// Flags are stronger than options.
    ///
    /// # Errors
    /// Something of what was typed is wrong, or the mount point is no place to mount on.
    pub fn of(args: &Mount) -> Result<Plan, Failure> {
        let Chosen {
            knobs,
            mut system,
            no_permissions,
            foreground,
            nonempty,
            metrics,
            log,
            stats,
            mut notes,
            ..
        } = options::read(&args.options, args.last_counts)?;
        let (root, dialect, source) = root(&args.source)?;
        let knobs = Knobs::clone(&args.knobs).behind(knobs);
        let found = flatout_ambient::gather(knobs.given())?;
        notes.extend(found.notes);
        let warnings = found.warnings.into_iter().filter(|(about, _)| *about == dialect);
        notes.extend(warnings.map(|(_, warning)| warning));
        let mount_point = MountPoint::look(&args.mount_point, nonempty)?.path().to_owned();
        if nonempty {
            system.push("nonempty".into());
        }
        let foreground = args.foreground || foreground;
        let log = args.log.clone().or(log);
        Ok(Plan {
            root,
            dialect,
            source,
            mount_point,
            knobs,
            settings: found.settings,
            system,
            default_permissions: !no_permissions,
            foreground,
            silent: args.is_silent,
            metrics: args.metrics.or(metrics),
            // In the foreground none is written.
            log: log.filter(|_| !foreground).map(|log| writable("--log", log)).transpose()?,
            stats: args.stats.clone().or(stats).map(|stats| writable("--stats", stats)).transpose()?,
            notes,
        })
    }
}

/// Where lines, or the numbers at the end, go: what cannot be written then is refused now. As seen from every folder.
fn writable(flag: &str, file: PathBuf) -> Result<PathBuf, Failure> {
    let refused = |error: io::Error| {
        Failure::local("mount", format!("{flag} {}", file.display()), &error)
            .with_hint("name a file in a folder that is there and may be written to")
    };
    let path = std::path::absolute(&file).map_err(refused)?;
    let errno = |errno: Errno| refused(errno.into());
    match path.metadata() {
        Ok(about) if about.is_dir() => Err(errno(Errno::ISDIR)),
        Ok(_) => access(&path, Access::WRITE_OK).map_err(errno).map(|()| path),
        Err(_) => {
            let folder = path.parent().unwrap_or(&path);
            match folder.metadata().map_err(refused)?.is_dir() {
                true => access(folder, Access::WRITE_OK | Access::EXEC_OK).map_err(errno).map(|()| path),
                false => Err(errno(Errno::NOTDIR)),
            }
        }
    }
}

/// What the source names: every bucket, a bucket, or what lies below a folder of it.
fn root(typed: &str) -> Result<(TreeRoot, Dialect, String), Failure> {
    for (dialect, scheme) in [(Dialect::S3, "s3://"), (Dialect::Oss, "oss://")] {
        if typed == scheme {
            return Ok((TreeRoot::Buckets(dialect), dialect, scheme.to_owned()));
        }
    }
    let location = origin::location("mount", typed)?;
    let Some((bucket, key)) = location.in_bucket() else {
        return Err(Failure::usage(format!(
            "mount: {location}: a web server has no listing to make folders of"
        ))
        .with_hint("a mount shows s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX]"));
    };
    if bucket.is_empty() {
        return Err(Failure::usage(format!("mount: {typed}: a bucket is missing"))
            .with_hint("write s3://BUCKET[/PREFIX], or s3:// alone for every bucket"));
    }
    // A prefix is a folder, whether or not somebody wrote the slash.
    let folder = match key {
        "" => String::new(),
        key if key.ends_with('/') => key.to_owned(),
        key => format!("{key}/"),
    };
    let location = location.with_key(folder).expect("what is in a bucket takes another key");
    let dialect = Dialect::of(&location);
    let source = location.to_string();
    Ok((TreeRoot::Under(location), dialect, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_folder_of_a_bucket_or_all_buckets() {
        let under = |typed: &str| match root(typed) {
            Ok((TreeRoot::Under(location), ..)) => location.to_string(),
            _ => panic!("{typed} is no folder of a bucket"),
        };
        assert_eq!(under("s3://models"), "s3://models");
        assert_eq!(under("s3://models/llama"), "s3://models/llama/");
        assert_eq!(under("oss://models/llama/"), "oss://models/llama/");
        assert!(matches!(root("s3://"), Ok((TreeRoot::Buckets(Dialect::S3), ..))));
        assert!(matches!(root("oss://"), Ok((TreeRoot::Buckets(Dialect::Oss), ..))));
        for (typed, says) in [
            ("http://host/x", "a web server"),
            ("models", "models"),
            ("s4://x", "s4://x"),
            ("s3:///x", "s3:///x"),
        ] {
            let failure = root(typed).map(drop).unwrap_err();
            assert!(failure.message.contains(says) && failure.message.starts_with("mount: "), "{failure}");
        }
    }
}
