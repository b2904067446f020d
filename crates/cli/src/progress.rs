//! The progress bar: drawn from a poll ten times a second, and only where a terminal shows it.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flatout_engine::{LimitedBy, ManyProgress, Progress, Transfer, Watch};
use flatout_settings::format_size;
use indicatif::style::ProgressTracker;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::console::{Carries, Console};
use crate::failure::one_line;
use crate::sys;

/// How often a bar looks and draws.
pub const POLL: Duration = Duration::from_millis(100);

/// A bar on standard error; without a terminal it is nothing at all.
pub struct Bar(Option<ProgressBar>);

impl Bar {
    /// A bar named after the object, if one is wanted.
    pub fn new(console: &Console, carries: Carries, name: &str) -> Bar {
        if !console.bar_wanted(carries) {
            return Bar(None);
        }
        let columns = columns();
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        bar.set_style(style(columns));
        bar.set_message(shortened(&one_line(name), columns / 4));
        Bar(Some(bar))
    }

    /// Whether there is a bar at all.
    pub fn is_shown(&self) -> bool {
        self.0.is_some()
    }

    /// Draws what has landed, and what limits it. The total is known from the first answer on and then stays.
    pub fn show(&self, landed_bytes: u64, total_bytes: Option<u64>, limited_by: Option<LimitedBy>) {
        let Some(bar) = &self.0 else { return };
        let limited_by = limited_by.map_or(String::new(), |by| format!("  limited by {by}"));
        bar.set_prefix(limited_by.chars().take(columns().saturating_sub(1)).collect::<String>());
        if let Some(total_bytes) = total_bytes {
            if bar.is_hidden() {
                bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            }
            bar.update(|state| {
                state.set_len(total_bytes);
                state.set_pos(landed_bytes);
            });
        }
    }

    /// Draws many objects: how many of them there are in place of a name. Both totals grow while the list of objects is
    /// read, which a `+` says, and stay from then on.
    pub fn show_many(&self, progress: &ManyProgress) {
        let Some(bar) = &self.0 else { return };
        let more = if progress.is_complete { "" } else { "+" };
        bar.set_message(format!("{}/{}{more}", progress.ok + progress.failed, progress.objects));
        self.show(progress.landed_bytes, Some(progress.total_bytes), progress.limited_by);
    }

    /// Says something on standard error, above the bar.
    pub fn above<R>(&self, say: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }

    /// Waits until the transfer has ended, drawing meanwhile.
    pub fn follow(&self, transfer: &Transfer) {
        if !self.is_shown() {
            return;
        }
        while !transfer.wait_timeout(POLL) {
            let Progress { landed_bytes, total_bytes, limited_by, .. } = transfer.progress();
            self.show(landed_bytes, total_bytes, limited_by);
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
                let Progress { landed_bytes, total_bytes, limited_by, .. } = watch.progress();
                self.show(landed_bytes, total_bytes, limited_by);
            }
        });
        Aside(Some((stop, thread)))
    }
}

/// How wide the terminal is.
fn columns() -> usize {
    usize::from(sys::columns(io::stderr().as_fd()).unwrap_or(80))
}

/// Of a line, two sizes take at most 19 columns, rate and time left 19 more, a name a quarter: a bar fits beside all of
/// them from 64 columns on, and beside name and sizes from about 35. What limits has a line of its own beneath.
fn style(columns: usize) -> ProgressStyle {
    let template = match columns {
        64.. => "{msg} [{wide_bar}] {landed}/{total} {rate}/s ETA {eta}\n{prefix}",
        _ => "{msg} [{wide_bar}] {landed}/{total}",
    };
    ProgressStyle::with_template(template)
        .expect("the templates are constants")
        .progress_chars("=> ")
        .with_key("landed", size(ProgressState::pos))
        .with_key("total", size(|state| state.len().unwrap_or_default()))
        .with_key("rate", size(|state| state.per_sec() as u64))
}

/// Sizes as the summary writes them.
fn size(of: fn(&ProgressState) -> u64) -> impl ProgressTracker {
    move |state: &ProgressState, line: &mut dyn fmt::Write| {
        // A line in memory takes everything.
        let _ = line.write_str(&format_size(of(state)));
    }
}

/// Takes the bar away; what remains is the command's own line.
impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
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
    use std::sync::{Arc, Mutex};

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

    #[test]
    fn the_bar_wrapped_at_80_and_40_columns() {
        for columns in [40, 63, 64, 77, 78, 80, 200] {
            let screen = Screen(columns, Arc::default());
            let target = ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), 255);
            let bar = ProgressBar::with_draw_target(Some(0), target);
            bar.set_style(style(columns.into()));
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
