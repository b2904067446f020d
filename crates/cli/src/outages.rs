//! Outages, in words: a line when an origin has been away for a while, and one when it is back.

use std::io::{self, Write};

use flatout_engine::{Client, OutageNews};

use crate::console::{Carries, Console};
use crate::failure::one_line;

/// Tells of the client's outages on standard error. Where a bar is drawn, that says it.
pub fn tell(client: &Client, console: &Console, carries: Carries) {
    if !console.bar_wanted(carries) {
        tell_without_bar(client, console);
    }
}

/// Reports outages for a command that draws no bar.
pub fn tell_without_bar(client: &Client, console: &Console) {
    if !console.is_quiet() {
        // A diagnostic that cannot be written cannot be reported either.
        let _ = client.on_outages(|news| {
            let _ = writeln!(io::stderr().lock(), "flatout: {}", line(&news));
        });
    }
}

/// The line for one piece of news.
pub fn line(news: &OutageNews) -> String {
    match news {
        OutageNews::Away { origin, why, timeout } => {
            format!("waiting for {origin}, up to {} s: {}", timeout.as_secs().max(1), one_line(why))
        }
        OutageNews::Back { origin, lasted } => {
            format!("{origin} is back after {} s", lasted.as_secs().max(1))
        }
    }
}
