//! `flatout volume build`: an index from a listing, an inventory or names.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use flatout_engine::{Client, Error, ErrorKind, Put, Source};
use flatout_erofs::Options;
use flatout_settings::format_size;
use flatout_volume::{BuildEvent, BuiltIndex, ListedObjects, Record, Wanted};
use flatout_wire::location::Location;

use super::find;
use super::keys;
use crate::args::{IndexedFrom, VolumeBuild};
use crate::commands::repeats::{counted, grouped};
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::knobs::Knobs;
use crate::progress::{Bar, POLL};
use crate::temporary_files::TemporaryPath;

/// Keys that are named on standard error; of more there is only a count.
const NAMED_MOST: u64 = 10;

pub fn run(args: &VolumeBuild, console: &Console) -> Result<Exit, Failure> {
    let source = find::folder(&find::in_bucket("build", &args.source)?);
    let target = Target::of(&args.index)?;
    let built = build("build", &source, &target.path(), &args.from, &args.knobs, console)?;
    let event = event(&source, &args.index, &built);
    let exit = if built.left_out > 0 { Exit::LeftOut } else { Exit::Clean };
    match target {
        Target::File(_) => built.publish()?,
        Target::Object(location) => upload(&location, &built, &args.knobs, console)?,
    }
    if event.files == 0 {
        console.warn(&format!("build: {source}: nothing lies there: the index is empty"));
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
            let path = PathBuf::from(typed);
            flatout_volume::check_target(&path)?;
            return Ok(Target::File(path));
        }
        let location = find::in_bucket("build", typed)?;
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
    let mut report = Report::create(doing, from.left_out.as_deref())?;
    let since = Instant::now();
    let records = records(source, target, from, &client, console, &mut report)?;
    let unknown = report.count;
    let bar = Bar::of_keys(console);
    let wanted = Wanted {
        prefix: source.key().to_owned(),
        options: Options { source: source.to_string(), ..Options::default() },
    };
    let (mut drawn, mut named) = (Instant::now(), None);
    let built = flatout_volume::build_index(target, &wanted, records, |event| {
        match event {
            BuildEvent::Keys(keys) => {
                if drawn.elapsed() >= POLL {
                    drawn = Instant::now();
                    bar.show_keys(keys);
                }
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
    let left_out = unknown + built.left_out;
    Ok(Built { index: built, left_out, _named: named, seconds: since.elapsed().as_secs_f64() })
}

pub type Records = Box<dyn Iterator<Item = Result<Record, Error>>>;

fn records(
    source: &Location,
    target: &Path,
    from: &IndexedFrom,
    client: &Arc<Client>,
    console: &Console,
    report: &mut Report,
) -> Result<Records, Failure> {
    if let Some(manifest) = &from.inventory {
        return keys::of_inventory(manifest, source, target, client, console, report);
    }
    if let Some(names) = &from.names {
        return keys::of_names(names, source, target, client, console, report);
    }
    Ok(Box::new(ListedObjects::under(client, source)?))
}

/// The keys that no file stands for: in a file, or the first of them on standard error.
pub struct Report {
    doing: &'static str,
    file: Option<(PathBuf, BufWriter<File>)>,
    count: u64,
}

impl Report {
    fn create(doing: &'static str, path: Option<&Path>) -> Result<Report, Failure> {
        let create = |path: &Path| {
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
                written.map_err(|error| Failure::local("build", path.display(), &error))?;
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

/// Puts the index where it is to be kept.
///
/// # Errors
/// The origin's refusal.
pub fn upload(location: &Location, built: &Built, knobs: &Knobs, console: &Console) -> Result<(), Failure> {
    let client = find::client(location, knobs, console)?;
    let file = built.index.file()?;
    // It has no name yet.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    let armed = console.interrupt.arm();
    let transfer = client.put(Put::new(location.clone(), Source::File(path)).without_resume())?;
    let switch = transfer.cancel_switch();
    armed.on_signal(move || switch.cancel());
    Bar::new(console, Carries::Lines, location.name()).follow(&transfer);
    transfer.wait()?;
    Ok(())
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
        "{}: {} files in {} folders, {}; the index has {}; {} in {:.1} s, {} keys/s",
        event.index,
        grouped(event.files),
        grouped(event.folders),
        format_size(event.bytes),
        format_size(event.index_bytes),
        event.source,
        event.seconds,
        grouped(rate as u64)
    )
}
