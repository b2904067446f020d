//! The progress bar: drawn from a poll ten times a second, and only where a terminal shows it.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use flatout_engine::{Progress, Transfer, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::console::{Carries, Console};
use crate::failure::one_line;

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
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template(
            "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} ETA {eta}",
        );
        bar.set_style(style.expect("the template is a constant").progress_chars("=> "));
        bar.set_message(shortened(&one_line(name)));
        Bar(Some(bar))
    }

    /// Whether there is a bar at all.
    pub fn is_shown(&self) -> bool {
        self.0.is_some()
    }

    /// Draws what has landed. The total is known from the first answer on and then stays.
    pub fn show(&self, landed_bytes: u64, total_bytes: Option<u64>) {
        let Some(bar) = &self.0 else { return };
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

    /// Waits until the transfer has ended, drawing meanwhile.
    pub fn follow(&self, transfer: &Transfer) {
        if !self.is_shown() {
            return;
        }
        while !transfer.wait_timeout(POLL) {
            let Progress { landed_bytes, total_bytes, .. } = transfer.progress();
            self.show(landed_bytes, total_bytes);
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
                let Progress { landed_bytes, total_bytes, .. } = watch.progress();
                self.show(landed_bytes, total_bytes);
            }
        });
        Aside(Some((stop, thread)))
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
fn shortened(name: &str) -> String {
    const WIDTH: usize = 32;
    let length = name.chars().count();
    if length <= WIDTH {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(length - WIDTH + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_keep_their_end() {
        assert_eq!(shortened("short"), "short");
        let long = format!("{}end", "x".repeat(100));
        assert_eq!(shortened(&long).chars().count(), 32);
        assert!(shortened(&long).starts_with('…') && shortened(&long).ends_with("end"));
    }
}
