//! `flatout volume build`: an index from a listing, an inventory or names.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use flatout_engine::{Error, ErrorKind, Put, Source, Stat};
use flatout_erofs::Options;
use flatout_settings::format_size;
use flatout_volume::{BuildEvent, BuiltIndex, Wanted};
use flatout_wire::location::Location;
use flatout_wire::object_options::Condition;

use super::find;
use super::keys::{self, Gathering};
use crate::args::{IndexedFrom, VolumeBuild};
use crate::commands::repeats::{counted, grouped};
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::knobs::Knobs;
use crate::origin;
use crate::progress::{Bar, KeysBar};
use crate::temporary_files::TemporaryPath;

/// Enough of an object to tell an index by.
const HEAD_BYTES: u64 = 64 << 10;

/// Keys that are named on standard error; of more there is only a count.
const NAMED_MOST: u64 = 10;

pub fn run(args: &VolumeBuild, console: &Console) -> Result<Exit, Failure> {
    let source = find::folder(&find::in_bucket("build", &args.source)?);
    let target = Target::of(&args.index)?;
    let condition = match &target {
        Target::File(_) => Condition::None,
        Target::Object(location) => condition_at(location, &args.knobs, console)?,
    };
    let built = build("build", &source, &target.path(), &args.from, &args.knobs, console)?;
    let event = event(&source, &args.index, &built);
    let exit = if built.left_out > 0 { Exit::LeftOut } else { Exit::Clean };
    match target {
        Target::File(path) => {
            // Something else may have come there meanwhile.
            flatout_volume::check_target(&path)?;
            built.publish()?;
        }
        Target::Object(location) => {
            upload(&location, &built, condition, &args.knobs, console)?;
        }
    }
    console.say(&says(&event))?;
    console.event(Carries::Lines, &event)?;
    Ok(exit)
}

/// Where an index goes.
pub enum Target {
    File(PathBuf),
    /// By way of a file without a name in the folder for what is temporary.
    Object(Location),
}

impl Target {
    /// What `typed` means.
    ///
    /// # Errors
    /// A place where no index can be.
    pub fn of(typed: &str) -> Result<Target, Failure> {
        if !typed.contains("://") {
            if ["", "-"].contains(&typed) || typed.ends_with('/') {
                return Err(Failure::usage(format!("build: '{typed}' is no name of a file"))
                    .with_hint("name the file for the index, as in train.flat"));
            }
            // A link is kept, and what it leads to is replaced.
            let path = Path::new(typed).canonicalize().unwrap_or_else(|_| PathBuf::from(typed));
            flatout_volume::check_target(&path)?;
            return Ok(Target::File(path));
        }
        let location = origin::location("build", typed)?;
        if location.in_bucket().is_none() {
            return Err(Failure::usage(format!("build: {location}: a web server takes no index"))
                .with_hint("name a file, s3://BUCKET/KEY or oss://BUCKET/KEY"));
        }
        if location.key().is_empty() || location.key().ends_with('/') {
            return Err(Failure::usage(format!("build: {location}: one object is wanted for the index"))
                .with_hint(format!("name one, as in {}train.flat", folder_of(&location))));
        }
        Ok(Target::Object(location))
    }

    fn path(&self) -> PathBuf {
        match self {
            Target::File(path) => path.clone(),
            Target::Object(_) => flatout_ambient::temporary_folder().join("index"),
        }
    }
}

fn folder_of(location: &Location) -> String {
    let text = location.to_string();
    if text.ends_with('/') { text } else { format!("{text}/") }
}

/// On which condition an index is put there: that nothing else than an index is lost.
fn condition_at(location: &Location, knobs: &Knobs, console: &Console) -> Result<Condition, Failure> {
    let client = find::client(location, knobs, console)?;
    let stat = match client.stat(location) {
        Ok(stat) => stat,
        // S3 says that of an absent object, too, to who may not list the bucket.
        Err(error) if [ErrorKind::NotFound, ErrorKind::Denied].contains(&error.kind()) => {
            return Ok(Condition::Absent);
        }
        Err(error) => return Err(error.into()),
    };
    if stat.version.size == Some(0) {
        return Ok(in_place_of(location, &stat));
    }
    let mut head = Vec::new();
    let read = keys::read(location, &client)?.take(HEAD_BYTES).read_to_end(&mut head);
    read.map_err(|error| keys::unread(&location.to_string(), error))?;
    match flatout_volume::is_replaceable(head) {
        true => Ok(in_place_of(location, &stat)),
        false => Err(flatout_volume::not_replaceable(location).into()),
    }
}

/// The condition that this version is still there, where the origin knows such a one.
pub fn in_place_of(location: &Location, stat: &Stat) -> Condition {
    let etag = stat.version.etag.as_deref();
    etag.and_then(|etag| Condition::unchanged(location, etag)).unwrap_or_default()
}

/// An index that has no name yet.
pub struct Built {
    pub index: BuiltIndex,
    /// Keys without a file, those of which the origin knows nothing included.
    pub left_out: u64,
    /// Where it has a name until then.
    _named: Option<TemporaryPath>,
    pub seconds: f64,
}

impl Built {
    /// Gives it its name.
    ///
    /// # Errors
    /// The system's.
    pub fn publish(self) -> Result<(), Failure> {
        self.index.publish()?;
        Ok(())
    }
}

/// Builds the index of what lies under `source`.
///
/// # Errors
/// The origin's refusal; what makes it no index; a signal.
pub fn build(
    doing: &'static str,
    source: &Location,
    target: &Path,
    from: &IndexedFrom,
    knobs: &Knobs,
    console: &Console,
) -> Result<Built, Failure> {
    let client = find::client(source, knobs, console)?;
    // A signal ends the build before the next key, and nothing is left.
    let _armed = console.interrupt.arm();
    let mut report = Report::create(doing, from, target)?;
    let since = Instant::now();
    let memory_bytes = flatout_ambient::gather(knobs.given())?.settings.memory_bytes;
    let memory_bytes = usize::try_from(memory_bytes).unwrap_or(usize::MAX);
    let bar = KeysBar::new(console);
    let gathering = Gathering {
        doing,
        source,
        target,
        memory_bytes,
        client: &client,
        console,
        report: &mut report,
        bar: &bar,
    };
    let records = gathering.records(from)?;
    drop(bar);
    let unknown = report.count;
    let bar = KeysBar::new(console);
    let wanted = Wanted {
        doing,
        prefix: source.key().to_owned(),
        options: Options { source: source.to_string(), ..Options::default() },
    };
    let mut named = None;
    let built = flatout_volume::build_index(target, &wanted, records, |event| {
        match event {
            BuildEvent::Keys(keys) => {
                bar.show(keys);
                if console.interrupt.raised() {
                    return Err(Error::new(ErrorKind::Cancelled, "interrupted"));
                }
            }
            // A signal that ends the program at once removes it, too.
            BuildEvent::Named(path) => named = Some(console.interrupt.temporary_files().register(path)),
            BuildEvent::LeftOut { key, why } => bar.above(|| report.add(key, &why, console))?,
        }
        Ok(())
    });
    drop(bar);
    let built = built.map_err(|error| match console.interrupt.raised() {
        true => Failure::interrupted(format!("{doing}: {source}: interrupted: no index was written")),
        false => Failure::from(error),
    })?;
    report.finish(console)?;
    if built.summary.files == 0 {
        let why = match unknown + built.left_out {
            0 => "no file lies there".to_owned(),
            left_out => format!("of {} no file can be made", counted(left_out, "key")),
        };
        return Err(Failure::not_found(format!("{doing}: {source}: {why}"))
            .with_hint("no index was written, and one that was there stays"));
    }
    let left_out = unknown + built.left_out;
    Ok(Built { index: built, left_out, _named: named, seconds: since.elapsed().as_secs_f64() })
}

/// A path without links and dots, whether or not a file is there.
fn place_of(path: &Path) -> Option<PathBuf> {
    let there = path.canonicalize().ok();
    there.or_else(|| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Some(folder.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
    })
}

/// The keys that no file stands for: in a file, or the first of them on standard error.
pub struct Report {
    doing: &'static str,
    file: Option<(PathBuf, BufWriter<File>)>,
    count: u64,
}

impl Report {
    fn create(doing: &'static str, from: &IndexedFrom, target: &Path) -> Result<Report, Failure> {
        let path = from.left_out.as_deref();
        let create = |path: &Path| {
            // Whatever is read, or will be written.
            let others = [Some(target), from.names.as_deref(), from.inventory.as_deref().map(Path::new)];
            let is_another = others.into_iter().flatten().any(|other| place_of(other) == place_of(path));
            let is_index = path.is_file() && File::open(path).is_ok_and(flatout_volume::is_replaceable);
            if is_another || is_index || path == Path::new("-") {
                let failure = Failure::usage(format!("{doing}: --left-out {}", path.display()));
                return Err(failure.with_hint("name a file of its own for the keys that are left out"));
            }
            let file = File::create(path).map_err(|error| Failure::local(doing, path.display(), &error))?;
            Ok::<_, Failure>((path.to_owned(), BufWriter::new(file)))
        };
        Ok(Report { doing, file: path.map(create).transpose()?, count: 0 })
    }

    /// Notes a key.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, key: &str, why: &str, console: &Console) -> Result<(), Error> {
        self.count += 1;
        match &mut self.file {
            Some((path, file)) => writeln!(file, "{}\t{why}", one_line(key)).map_err(|error| {
                Error::new(ErrorKind::LocalIo, flatout_engine::plain(&error)).during("write", path.display())
            }),
            None => {
                if self.count <= NAMED_MOST {
                    console.warn(&format!("{}: {}: left out: {why}", self.doing, one_line(key)));
                }
                Ok(())
            }
        }
    }

    fn finish(self, console: &Console) -> Result<(), Failure> {
        let more = self.count.saturating_sub(NAMED_MOST);
        match self.file {
            Some((path, mut file)) => {
                let written = file.flush();
                written.map_err(|error| Failure::local(self.doing, path.display(), &error))?;
                if self.count > 0 {
                    let keys = counted(self.count, "key");
                    console.warn(&format!("{}: {keys} left out: {} names them", self.doing, path.display()));
                }
            }
            None if more > 0 => console.warn(&format!(
                "{}: {} more left out: --left-out FILE has all of them",
                self.doing,
                counted(more, "key")
            )),
            None => {}
        }
        Ok(())
    }
}

/// Puts the index where it is to be kept; its ETag there.
///
/// # Errors
/// The origin's refusal; the condition does not hold any more.
pub fn upload(
    location: &Location,
    built: &Built,
    condition: Condition,
    knobs: &Knobs,
    console: &Console,
) -> Result<Option<String>, Failure> {
    let client = find::client(location, knobs, console)?;
    let file = built.index.file()?;
    // It has no name yet.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    let armed = console.interrupt.arm();
    let put = Put::new(location.clone(), Source::File(path)).without_resume().on_condition(condition);
    let transfer = client.put(put)?;
    let switch = transfer.cancel_switch();
    armed.on_signal(move || switch.cancel());
    Bar::new(console, Carries::Lines, location.name()).follow(&transfer);
    match transfer.wait() {
        Err(error) if error.kind() == ErrorKind::Changed => {
            let hint = match error.is_there() {
                true => "it came there meanwhile: try it again, or name another object",
                false => "somebody replaced it meanwhile, and theirs stays: try it again",
            };
            Err(Failure::from(error).with_hint(hint))
        }
        ended => Ok(ended?.version.etag),
    }
}

/// What is said of an index that was built.
pub fn event(source: &Location, index: &str, built: &Built) -> events::VolumeBuilt {
    let summary = &built.index.summary;
    events::VolumeBuilt {
        source: source.to_string(),
        index: index.to_owned(),
        files: summary.files,
        folders: summary.folders,
        bytes: summary.file_bytes,
        index_bytes: summary.index_bytes,
        left_out: built.left_out,
        seconds: built.seconds,
        ..events::VolumeBuilt::default()
    }
}

/// What is said of it in a line.
pub fn says(event: &events::VolumeBuilt) -> String {
    let rate = (event.files + event.left_out) as f64 / event.seconds.max(0.001);
    format!(
        "{}: {} in {}, {}; the index has {}; {} in {:.1} s, {} keys/s",
        event.index,
        counted(event.files, "file"),
        counted(event.folders, "folder"),
        format_size(event.bytes),
        format_size(event.index_bytes),
        event.source,
        event.seconds,
        grouped(rate as u64)
    )
}
