//! Outages, in words: a line when an origin has been away for a while, and one when it is back.

use std::io::{self, Write};

use flatout_engine::Client;

use crate::console::{Carries, Console};
use crate::failure::one_line;

/// Tells of the client's outages on standard error. Where a bar is drawn, that says it.
pub fn tell(client: &Client, console: &Console, carries: Carries) {
    if !console.bar_wanted(carries) {
        tell_without_bar(client, console);
    }
}

/// Tells of the client's outages, for a command that draws no bar.
pub fn tell_without_bar(client: &Client, console: &Console) {
    if !console.is_quiet() {
        // A diagnostic that cannot be written cannot be reported either.
        let _ = client.on_outages(|news| {
            let _ = writeln!(io::stderr().lock(), "flatout: {}", one_line(&news.to_string()));
        });
    }
}
