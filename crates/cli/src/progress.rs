//! The progress bar: drawn from a poll ten times a second, and only where a terminal shows it.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use flatout_engine::{LimitedBy, ManyProgress, Progress, Transfer, Watch};
use flatout_settings::format_size;
use indicatif::style::ProgressTracker;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::commands::repeats::grouped;
use crate::console::{Carries, Console};
use crate::failure::one_line;
use crate::{limited, sys};

/// How often a bar looks and draws.
pub const POLL: Duration = Duration::from_millis(100);

/// What a bar shows of `flatout run`.
pub struct LinesProgress {
    pub begun: u64,
    pub ok: u64,
    pub failed: u64,
    /// Of the file of commands.
    pub read_bytes: u64,
    /// By lines that have ended.
    pub moved_bytes: u64,
}

/// A bar on standard error; without a terminal it is nothing at all.
pub struct Bar(Option<Drawn>);

/// A counter of keys on standard error, drawn now and then.
pub struct KeysBar {
    bar: Bar,
    drawn: Cell<Instant>,
}

impl KeysBar {
    /// Of a listing, which has no known length.
    pub fn new(console: &Console) -> KeysBar {
        let bar = Bar::new(console, Carries::Lines, "");
        if let Some(Drawn { bar, .. }) = &bar.0 {
            bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is a constant"));
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        }
        KeysBar { bar, drawn: Cell::new(Instant::now()) }
    }

    /// Draws how many keys there were, and how fast they come.
    pub fn show(&self, keys: u64) {
        let Some(Drawn { bar, speed }) = &self.bar.0 else { return };
        if self.drawn.get().elapsed() < POLL {
            return;
        }
        self.drawn.set(Instant::now());
        lock(speed).on_look(Instant::now(), keys);
        let rate = lock(speed).bytes_per_s() as u64;
        bar.set_message(format!("{} keys, {} keys/s", grouped(keys), grouped(rate)));
        bar.tick();
    }

    /// Says something on standard error, above it.
    pub fn above<R>(&self, say: impl FnOnce() -> R) -> R {
        self.bar.above(say)
    }
}

struct Drawn {
    bar: ProgressBar,
    speed: Arc<Mutex<Speed>>,
}

impl Bar {
    /// A bar named after the object, if one is wanted.
    pub fn new(console: &Console, carries: Carries, name: &str) -> Bar {
        if !console.bar_wanted(carries) {
            return Bar(None);
        }
        let (columns, speed) = (columns(), Arc::default());
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        bar.set_style(style(columns, &speed));
        bar.set_message(shortened(&one_line(name), columns / 4));
        Bar(Some(Drawn { bar, speed }))
    }

    /// A bar for the lines of a file, which is as long as the file, or for those of a stream.
    pub fn of_lines(console: &Console, file_bytes: Option<u64>) -> Bar {
        let bar = Bar::new(console, Carries::Lines, "");
        if let Some(Drawn { bar, .. }) = &bar.0 {
            let template = match file_bytes {
                Some(_) => "{msg} [{wide_bar}] {prefix}",
                None => "{msg} {prefix}",
            };
            let style = ProgressStyle::with_template(template).expect("the templates are constants");
            bar.set_style(style.progress_chars("=> "));
            bar.set_length(file_bytes.unwrap_or_default());
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        }
        bar
    }

    /// Draws lines: how many of those that were begun are done, how many failed, how fast bytes come.
    pub fn show_lines(&self, progress: &LinesProgress) {
        let Some(Drawn { bar, speed }) = &self.0 else { return };
        let LinesProgress { begun, ok, failed, read_bytes, moved_bytes } = *progress;
        lock(speed).on_look(Instant::now(), moved_bytes);
        let failures = if failed > 0 { format!(", {failed} failed") } else { String::new() };
        bar.set_message(format!("{}/{begun}+ lines{failures}", ok + failed));
        let rate = format_size(lock(speed).bytes_per_s() as u64);
        bar.set_prefix(format!("{} {rate}/s", format_size(moved_bytes)));
        bar.set_position(read_bytes);
    }

    /// Whether there is a bar at all.
    pub fn is_shown(&self) -> bool {
        self.0.is_some()
    }

    /// Draws what has landed, and what limits it. The total is known from the first answer on and then stays.
    pub fn show(&self, progress: &Progress) {
        let Some(Drawn { bar, speed }) = &self.0 else { return };
        let Progress { landed_bytes, fetched_bytes, total_bytes, limited_by, .. } = *progress;
        lock(speed).on_look(Instant::now(), fetched_bytes);
        let is_away = matches!(limited_by, Some(LimitedBy::Outage { .. }));
        let limited_by = limited_by.map_or(String::new(), |by| format!("  limited by {}", limited::says(by)));
        bar.set_prefix(limited_by.chars().take(columns().saturating_sub(1)).collect::<String>());
        if bar.is_hidden() && (total_bytes.is_some() || is_away) {
            bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        }
        if let Some(total_bytes) = total_bytes {
            bar.update(|state| {
                state.set_len(total_bytes);
                state.set_pos(landed_bytes);
            });
        }
    }

    /// Draws many objects: how many of them there are in place of a name. Both totals grow while the list of
    /// objects is read, which a `+` says, and stay from then on.
    pub fn show_many(&self, progress: &ManyProgress) {
        let Some(Drawn { bar, .. }) = &self.0 else { return };
        let more = if progress.is_complete { "" } else { "+" };
        bar.set_message(format!("{}/{}{more}", progress.ok + progress.failed, progress.objects));
        self.show(&Progress {
            landed_bytes: progress.landed_bytes,
            fetched_bytes: progress.fetched_bytes,
            total_bytes: Some(progress.total_bytes),
            limited_by: progress.limited_by,
            ..Progress::default()
        });
    }

    /// Says something on standard error, above the bar.
    pub fn above<R>(&self, say: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(Drawn { bar, .. }) => bar.suspend(say),
            None => say(),
        }
    }

    /// Waits until the transfer has ended, drawing meanwhile.
    pub fn follow(&self, transfer: &Transfer) {
        if !self.is_shown() {
            return;
        }
        while !transfer.wait_timeout(POLL) {
            self.show(&transfer.progress());
        }
    }

    /// Draws from a thread of its own, for a command whose own thread is busy writing.
    pub fn follow_aside(self, watch: Watch) -> Aside {
        if !self.is_shown() {
            return Aside(None);
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            while stopped.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
                self.show(&watch.progress());
            }
        });
        Aside(Some((stop, thread)))
    }
}

/// How wide the terminal is.
fn columns() -> usize {
    usize::from(sys::columns(io::stderr().as_fd()).unwrap_or(80))
}

/// Of a line, two sizes take at most 19 columns, rate and time left 19 more, a name a quarter: a bar fits
/// beside all of them from 64 columns on, and beside name and sizes from about 35. What limits has a line of
/// its own beneath.
fn style(columns: usize, speed: &Arc<Mutex<Speed>>) -> ProgressStyle {
    let template = match columns {
        64.. => "{msg} [{wide_bar}] {landed}/{total} {rate}/s ETA {left}\n{prefix}",
        _ => "{msg} [{wide_bar}] {landed}/{total}",
    };
    let (now, later) = (speed.clone(), speed.clone());
    ProgressStyle::with_template(template)
        .expect("the templates are constants")
        .progress_chars("=> ")
        .with_key("landed", written(|state| format_size(state.pos())))
        .with_key("total", written(|state| format_size(state.len().unwrap_or_default())))
        .with_key("rate", written(move |_| format_size(lock(&now).bytes_per_s() as u64)))
        .with_key(
            "left",
            written(move |state| {
                let left_bytes = state.len().unwrap_or_default().saturating_sub(state.pos());
                let left = lock(&later).time_for(left_bytes);
                left.map_or_else(|| "-".to_owned(), |left| format!("{:#}", HumanDuration(left)))
            }),
        )
}

/// What stands in a line for a key.
fn written(of: impl Fn(&ProgressState) -> String + Clone + Send + Sync + 'static) -> impl ProgressTracker {
    move |state: &ProgressState, line: &mut dyn fmt::Write| {
        // A line in memory takes everything.
        let _ = line.write_str(&of(state));
    }
}

fn lock(speed: &Mutex<Speed>) -> MutexGuard<'_, Speed> {
    speed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What comes over the network now: the mean of the last few seconds. What an earlier run had left does not
/// come over it.
#[derive(Debug, Default)]
struct Speed(VecDeque<(Instant, u64)>);

/// Shorter, and parts that end at a time would show; longer, and a rate that has changed would not.
const LATELY: Duration = Duration::from_secs(3);

/// Longer times are not shown.
const LEFT_MOST: Duration = Duration::from_secs(365 * 24 * 3600);

impl Speed {
    /// `bytes` had come by `now`.
    fn on_look(&mut self, now: Instant, bytes: u64) {
        self.0.push_back((now, bytes));
        // The first one is at the window's edge, or before it.
        while self.0.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= LATELY) {
            self.0.pop_front();
        }
    }

    fn bytes_per_s(&self) -> f64 {
        let (Some((from, before)), Some((to, after))) = (self.0.front(), self.0.back()) else { return 0.0 };
        let seconds = to.duration_since(*from).as_secs_f64();
        if seconds > 0.0 { after.saturating_sub(*before) as f64 / seconds } else { 0.0 }
    }

    /// How long `bytes` will take; `None` where nothing comes.
    fn time_for(&self, bytes: u64) -> Option<Duration> {
        let rate = self.bytes_per_s();
        let seconds = (rate > 0.0).then(|| bytes as f64 / rate)?;
        Some(Duration::from_secs_f64(seconds.min(LEFT_MOST.as_secs_f64()))).filter(|left| *left < LEFT_MOST)
    }
}

/// Takes the bar away; what remains is the command's own line.
impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(Drawn { bar, .. }) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// The thread that draws; dropping it takes the bar away.
pub struct Aside(Option<(Sender<()>, JoinHandle<()>)>);

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            // A bar that panicked has nothing to say that matters more than the transfer.
            let _ = thread.join();
        }
    }
}

/// Long names keep their end, which tells objects apart.
fn shortened(name: &str, columns: usize) -> String {
    let columns = columns.clamp(1, 32);
    let length = name.chars().count();
    if length <= columns {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(length - columns + 1)).collect()
}

#[cfg(test)]
mod tests {
    use indicatif::TermLike;

    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        let long = format!("{}end", "x".repeat(100));
        let check =
            |name: &str, columns: usize, expected: &str| assert_eq!(shortened(name, columns), expected);
        check("short", 10, "short");
        check("exactly-10", 10, "exactly-10");
        check(&long, 10, "…xxxxxxend");
        check(&long, 200, &format!("…{}end", "x".repeat(28)));
        check(&long, 0, "…");
    }

    /// A terminal that keeps its last line.
    #[derive(Clone, Debug)]
    struct Screen(u16, Arc<Mutex<Vec<String>>>);

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            self.0
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, _: &str) -> io::Result<()> {
            Ok(())
        }

        fn write_str(&self, text: &str) -> io::Result<()> {
            if !text.trim().is_empty() {
                self.1.lock().unwrap().push(text.to_owned());
            }
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// It was the mean since the start, in which what an earlier run had left counted as if it had come in a
    /// moment.
    #[test]
    fn the_rate_is_that_of_now() {
        // Looks ten times a second, so many bytes more at each; the rate then, and the time left for a
        // thousand bytes.
        let check = |looks: &[(u32, u64)], rate: u64, left_s: Option<u64>| {
            let (start, mut speed, mut bytes, mut number) = (Instant::now(), Speed::default(), 0, 0);
            speed.on_look(start, 0);
            for more in looks.iter().flat_map(|(times, more)| (0..*times).map(|_| *more)) {
                (bytes, number) = (bytes + more, number + 1);
                speed.on_look(start + number * POLL, bytes);
            }
            let left = speed.time_for(1_000).map(|left| left.as_secs_f64().round() as u64);
            assert_eq!((speed.bytes_per_s().round() as u64, left), (rate, left_s), "{looks:?}");
            assert!(speed.0.len() <= 32, "{}", speed.0.len());
        };
        check(&[], 0, None);
        check(&[(1, 10)], 100, Some(10));
        check(&[(100, 10)], 100, Some(10));
        check(&[(100, 10), (30, 100)], 1_000, Some(1));
        check(&[(100, 100), (15, 0)], 500, Some(2));
        check(&[(100, 100), (30, 0)], 0, None);
        check(&[(30, 1)], 10, Some(100));
    }

    #[test]
    fn the_bar_wrapped_at_80_and_40_columns() {
        let (speed, now) = (Arc::<Mutex<Speed>>::default(), Instant::now());
        lock(&speed).on_look(now, 0);
        lock(&speed).on_look(now + Duration::from_secs(1), (1 << 30) - (1 << 20));
        for columns in [40, 63, 64, 77, 78, 80, 200] {
            let screen = Screen(columns, Arc::default());
            let target = ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), 255);
            let bar = ProgressBar::with_draw_target(Some(0), target);
            bar.set_style(style(columns.into(), &speed));
            bar.set_message(shortened(&"name".repeat(20), usize::from(columns) / 4));
            bar.set_prefix("throttling");
            bar.update(|state| {
                state.set_len((1 << 40) - (1 << 30));
                state.set_pos((1 << 40) - (3 << 30));
            });
            bar.force_draw();
            let lines = screen.1.lock().unwrap().clone();
            assert!(lines.iter().all(|line| line.chars().count() <= columns.into()), "{columns}: {lines:?}");
            assert_eq!(lines.iter().any(|line| line == "throttling"), columns >= 64, "{columns}: {lines:?}");
            let line = lines.iter().rfind(|line| line.contains("=>")).expect("a bar").clone();
            assert!(line.chars().count() <= columns.into() && line.contains("=>"), "{columns}: {line:?}");
            assert!(line.contains("1021GiB/1023GiB"), "{columns}: {line:?}");
            bar.abandon();
        }
    }
}
