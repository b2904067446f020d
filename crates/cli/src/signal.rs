//! SIGINT, SIGTERM and the hang-up of a terminal: the first ends the work in good order, a second one, or too long a delay, at once.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// How long the work may take to end in good order, for instance while a full pipe blocks a write.
const GRACE: Duration = Duration::from_secs(5);

/// Signals closer together are one: timeout(1) tells the program and then its group.
const TOGETHER: Duration = Duration::from_millis(300);

/// Knows whether a signal came, and what is to be ended when one comes.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// When the first signal came.
    raised: Option<Instant>,
    /// Whether a second signal means no more than the first.
    patient: bool,
    next_id: u64,
    hooks: Vec<(u64, Option<Hook>)>,
    /// What an end at once takes along.
    temporary: Vec<PathBuf>,
    /// Who is told of every signal, and ends the program.
    warden: Option<Warden>,
}

type Hook = Box<dyn Fn() + Send>;

struct Warden {
    told: Arc<dyn Fn(u32) + Send + Sync>,
    count: u32,
    last: Option<Instant>,
}

/// While this lives, a signal does not end the program but runs the hook.
pub struct Armed {
    interrupt: Interrupt,
    id: u64,
}

/// A file or folder that is not to stay: it goes with this value, and with a program that ends at once.
pub struct Temporary {
    interrupt: Interrupt,
    path: PathBuf,
}

impl Interrupt {
    /// Starts the thread that waits for signals.
    pub fn listen() -> io::Result<Interrupt> {
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        if !ignores_hang_up() {
            signals.add_signal(SIGHUP)?;
        }
        // A write past `ulimit -f` is to be an error like a full disk, not a death that leaves things behind.
        flag::register(SIGXFSZ, Arc::default())?;
        let interrupt = Interrupt::default();
        let raised = interrupt.clone();
        thread::Builder::new().name("signals".into()).spawn(move || {
            for _ in signals.forever() {
                raised.raise();
            }
        })?;
        Ok(interrupt)
    }

    /// To be called before there is anything to end: from here on a signal leaves the program time for it.
    pub fn arm(&self) -> Armed {
        let mut state = self.state();
        let id = state.next_id;
        state.next_id += 1;
        state.hooks.push((id, None));
        Armed { interrupt: self.clone(), id }
    }

    /// From here on neither a second signal nor a delay ends the program: `told` hears of each, counted from 1, and sees to
    /// the end. Of one that came before, too.
    pub fn take_over(&self, told: impl Fn(u32) + Send + Sync + 'static) {
        let mut state = self.state();
        let was_raised = state.raised.is_some();
        state.warden = Some(Warden { told: Arc::new(told), count: 0, last: None });
        drop(state);
        if was_raised {
            self.raise();
        }
    }

    /// Whether a signal came.
    pub fn raised(&self) -> bool {
        self.state().raised.is_some()
    }

    /// For a child: a terminal tells it what its parent tells it too, and that is one interrupt, not two.
    pub fn be_patient(&self) {
        self.state().patient = true;
    }

    /// Makes a file. No signal comes between that and the promise to remove it.
    pub fn temporary_file(&self, path: &Path) -> io::Result<(Temporary, File)> {
        let mut state = self.state();
        let file = File::create_new(path)?;
        Ok((self.held(&mut state, path), file))
    }

    /// What somebody else is about to make there.
    pub fn temporary(&self, path: &Path) -> Temporary {
        self.held(&mut self.state(), path)
    }

    fn held(&self, state: &mut State, path: &Path) -> Temporary {
        state.temporary.push(path.to_owned());
        Temporary { interrupt: self.clone(), path: path.to_owned() }
    }

    /// With nothing to end in good order there is nothing to wait for.
    fn raise(&self) {
        let mut state = self.state();
        if let Some(warden) = &mut state.warden {
            if warden.last.is_some_and(|last| last.elapsed() < TOGETHER) {
                return;
            }
            (warden.count, warden.last) = (warden.count + 1, Some(Instant::now()));
            let (told, count) = (warden.told.clone(), warden.count);
            // What it does may take long, and takes this lock.
            drop(state);
            return told(count);
        }
        match state.raised {
            Some(first) if state.patient || first.elapsed() < TOGETHER => return,
            None if !state.hooks.is_empty() => {}
            _ => end(&state),
        }
        state.raised = Some(Instant::now());
        state.hooks.iter().filter_map(|(_, hook)| hook.as_ref()).for_each(|hook| hook());
        let interrupt = self.clone();
        thread::spawn(move || {
            thread::sleep(GRACE);
            let state = interrupt.state();
            if state.warden.is_none() {
                end(&state);
            }
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the program at once. Whoever holds the state lets nobody make or rename anything temporary until the end.
fn end(state: &MutexGuard<'_, State>) -> ! {
    state.temporary.iter().for_each(|path| remove(path));
    process::exit(Exit::Interrupted.code().into())
}

/// What may not be there, or not be there any more.
fn remove(path: &Path) {
    let _ = match path.symlink_metadata().is_ok_and(|known| known.is_dir()) {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
}

impl Temporary {
    /// Gives it its lasting name, in place of what may stand there.
    pub fn rename(self, to: &Path) -> io::Result<()> {
        let state = self.interrupt.state();
        let outcome = fs::rename(&self.path, to);
        // Dropping this value wants it, too.
        drop(state);
        outcome
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut state = self.interrupt.state();
        remove(&self.path);
        state.temporary.retain(|path| *path != self.path);
    }
}

/// Whether whoever started us, such as nohup, wants a closed terminal to mean nothing.
fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    ignored & 1 << (SIGHUP - 1) != 0
}

impl Armed {
    /// Runs `hook` when the first signal comes, or now if it has come already.
    pub fn on_signal(&self, hook: impl Fn() + Send + 'static) {
        let mut state = self.interrupt.state();
        if state.raised.is_some() {
            hook();
        }
        let mine = state.hooks.iter_mut().find(|(id, _)| *id == self.id);
        mine.expect("it stays until it is dropped").1 = Some(Box::new(hook));
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.interrupt.state().hooks.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_temporary_goes_unless_it_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let (interrupt, at) = (Interrupt::default(), |name: &str| folder.path().join(name));
        let (page, _) = interrupt.temporary_file(&at("page.new")).unwrap();
        let (half, _) = interrupt.temporary_file(&at("half.new")).unwrap();
        let made = interrupt.temporary(&at("made"));
        fs::create_dir_all(at("made/below")).unwrap();
        assert_eq!(interrupt.state().temporary, [at("page.new"), at("half.new"), at("made")]);
        page.rename(&at("page")).unwrap();
        drop((half, made));
        assert_eq!(names(folder.path()), ["page"]);
        assert!(interrupt.state().temporary.is_empty());
    }

    #[test]
    fn a_warden_hears_of_every_signal_and_nothing_else_ends() {
        let interrupt = Interrupt::default();
        let armed = interrupt.arm();
        interrupt.raise();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        interrupt.take_over(move |count| hears.lock().unwrap().push(count));
        assert_eq!(*heard.lock().unwrap(), [1], "the one before");
        interrupt.raise();
        assert_eq!(*heard.lock().unwrap(), [1], "closer together are one");
        interrupt.state().warden.as_mut().unwrap().last = None;
        interrupt.raise();
        assert_eq!(*heard.lock().unwrap(), [1, 2]);
        drop(armed);
    }

    #[test]
    fn an_end_at_once_waits_for_whoever_makes_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (interrupt, path) = (Interrupt::default(), folder.path().join("page.new"));
        let (page, _) = interrupt.temporary_file(&path).unwrap();
        // As `end` holds it until the program is gone.
        let state = interrupt.state();
        state.temporary.iter().for_each(|path| remove(path));
        let (late, to) = (interrupt.clone(), folder.path().join("page"));
        let renaming = thread::spawn(move || (page.rename(&to), late.temporary_file(&to).is_ok()));
        thread::sleep(Duration::from_millis(50));
        assert!(!renaming.is_finished() && names(folder.path()).is_empty());
        drop(state);
        let (renamed, _) = renaming.join().unwrap();
        assert!(renamed.is_err(), "there was nothing left to rename");
    }
}
