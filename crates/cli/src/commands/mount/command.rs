//! What `flatout mount` is to do: from flags, options, variables and files, before anything is done.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use flatout_engine::{Dialect, Error};
use flatout_mounting::{IndexRoot, MountOptions, MountPlan, MountRoot, MountSource, OptionError};
use flatout_settings::Settings;
use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::args::{Mount, ShownIndex};
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::origin;

/// Everything decided: the mount, and what the command does around it.
pub struct MountCommand {
    pub plan: MountPlan,
    pub knobs: Knobs,
    pub foreground: bool,
    pub supervise: bool,
    pub silent: bool,
    pub metrics: Option<SocketAddr>,
    pub log: Option<PathBuf>,
    pub stats: Option<PathBuf>,
    pub notes: Vec<String>,
}

impl MountCommand {
    /// Flags are stronger than options.
    ///
    /// # Errors
    /// Something of what was typed is wrong, or the mount point is no place to mount on.
    pub fn of(args: &Mount) -> Result<MountCommand, Failure> {
        MountCommand::with(args, false, writable, |mount_point, source, settings, options| {
            MountPlan::new(source, mount_point, settings, options)
        })
    }

    /// Of a mount that stands: neither its mount point nor any file is looked at.
    ///
    /// # Errors
    /// As [`MountCommand::of`].
    pub fn of_standing(args: &Mount) -> Result<MountCommand, Failure> {
        // They may lie in the mount.
        let absolute = |flag: &str, file: PathBuf| {
            std::path::absolute(&file)
                .map_err(|error| Failure::local("mount", format!("{flag} {}", file.display()), &error))
        };
        MountCommand::with(args, true, absolute, |mount_point, source, settings, options| {
            Ok(MountPlan::of_standing(source, mount_point, settings, options))
        })
    }

    fn with(
        args: &Mount,
        stands: bool,
        file: impl Fn(&str, PathBuf) -> Result<PathBuf, Failure>,
        plan: impl FnOnce(&Path, MountSource, Settings, &MountOptions) -> Result<MountPlan, Error>,
    ) -> Result<MountCommand, Failure> {
        let mut options = MountOptions::parse(&args.options, args.last_counts).map_err(refused_option)?;
        let source = match &args.index {
            Some(index) => self::index(index, stands)?,
            None => source(&args.source)?,
        };
        let knobs = Knobs::clone(&args.knobs).behind(std::mem::take(&mut options.knobs));
        let found = flatout_ambient::gather(knobs.given())?;
        let mut notes: Vec<String> = options.notes.iter().map(|note| format!("mount: {note}")).collect();
        notes.extend(found.notes);
        let warnings = found.warnings.into_iter().filter(|(about, _)| *about == source.dialect);
        notes.extend(warnings.map(|(_, warning)| warning));
        let mount_point = args.mount_point.as_deref().unwrap_or(Path::new(""));
        let mut settings = found.settings;
        if let MountRoot::Index(index) = &source.root {
            notes.extend(without_image(args, index.is_image));
            // EROFS lets everybody in; root may have FUSE do so, too.
            settings.mount.allow_other |= rustix::process::geteuid().is_root();
        }
        let mut plan = plan(mount_point, source, settings, &options)?;
        plan.state_folder = flatout_ambient::mounts_folder();
        let foreground = args.serving.foreground || options.foreground;
        let log = args.serving.log.clone().or(options.log);
        let stats = args.serving.stats.clone().or(options.stats);
        Ok(MountCommand {
            plan,
            knobs,
            foreground,
            supervise: args.serving.supervise || options.supervise,
            silent: args.is_silent,
            metrics: args.serving.metrics.or(options.metrics),
            // In the foreground none is written.
            log: log.filter(|_| !foreground).map(|log| file("--log", log)).transpose()?,
            stats: stats.map(|stats| file("--stats", stats)).transpose()?,
            notes,
        })
    }
}

fn refused_option(error: OptionError) -> Failure {
    let failure = Failure::usage(format!("mount: {error}"));
    match error.hint {
        Some(hint) => failure.with_hint(hint),
        None if error.is_unknown => failure.with_hint(
            "`flatout mount --help` has those of Flatout, docs/from-libfuse.md and docs/from-ossfs.md those of others that it takes",
        ),
        None => failure,
    }
}

/// The index at that path, and how this machine can show it.
fn index(shown: &ShownIndex, stands: bool) -> Result<MountSource, Failure> {
    let path = shown.path.canonicalize().or_else(|_| std::path::absolute(&shown.path));
    let path = path.map_err(|error| Failure::local("mount", shown.path.display(), &error))?;
    let index = flatout_volume::open_index("mount", &path)?;
    let location = origin::location("mount", index.source())?;
    // A mount that stands says itself how it is shown.
    let is_image = !shown.by_fuse && (stands || flatout_mounting::image_support().is_ok());
    let root = IndexRoot { path, is_image, is_direct: !shown.reads_ahead };
    Ok(MountSource::index(root, Dialect::of(&location)))
}

/// The note that FUSE shows the files because EROFS cannot; `None` with `--fuse`.
fn without_image(args: &Mount, is_image: bool) -> Option<String> {
    if is_image || args.index.as_ref()?.by_fuse || args.serving.serves {
        return None;
    }
    let why = flatout_mounting::image_support().err()?;
    Some(format!("mount: the files are shown by FUSE, where names cost more than by EROFS: {why}"))
}

/// What was typed as the source.
fn source(typed: &str) -> Result<MountSource, Failure> {
    match typed {
        "s3://" => Ok(MountSource::buckets(Dialect::S3)),
        "oss://" => Ok(MountSource::buckets(Dialect::Oss)),
        _ => Ok(MountSource::under(&origin::location("mount", typed)?)?),
    }
}

/// The absolute path of a file that is written later: one that cannot be written then is refused now.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_names_buckets() {
        assert_eq!(source("s3://").unwrap().to_string(), "s3://");
        assert_eq!(source("oss://").unwrap().to_string(), "oss://");
        assert_eq!(source("s3://models/llama").unwrap().to_string(), "s3://models/llama/");
        for (typed, says) in [
            ("http://host/x", "a web server"),
            ("models", "models"),
            ("s4://x", "s4://x"),
            ("s3:///x", "s3:///x"),
        ] {
            let failure = source(typed).map(drop).unwrap_err();
            assert!(failure.message.contains(says) && failure.message.starts_with("mount: "), "{failure}");
        }
    }

    #[test]
    fn an_option_that_nobody_knows_has_a_hint() {
        let refused =
            |option: &str| refused_option(MountOptions::parse(&[option.to_owned()], false).unwrap_err());
        let shown = refused("frobnicate=1").to_string();
        assert!(
            shown.contains("mount: -o frobnicate: is no option\n  hint: `flatout mount --help`"),
            "{shown}"
        );
        assert!(refused("attr_timeot=1").hint.is_some_and(|hint| hint.starts_with("did you mean")));
        assert_eq!(refused("uid=x").hint, None);
    }
}
