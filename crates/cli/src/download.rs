//! One object to a file or to standard output, with a bar where one is wanted and signals heeded.

use std::path::Path;

use flatout_engine::{Client, Error, Get, Landing, Report, Transfer, stream};
use flatout_wire::location::Location;
use flatout_wire::range::Span;

use crate::console::{Carries, Console};
use crate::failure::Failure;
use crate::progress::Bar;
use crate::signal::Armed;
use crate::stdout;

/// What is fetched, and by whom.
pub struct Download<'a> {
    pub client: &'a Client,
    pub location: &'a Location,
    pub span: Option<&'a Span>,
    pub console: &'a Console,
}

impl Download<'_> {
    /// Into a file, which the engine shows under its name only when it is whole and verified.
    pub fn to_file(&self, path: &Path) -> Result<Report, Failure> {
        let (transfer, _armed) = self.start(Landing::File(path.to_path_buf()))?;
        Bar::new(self.console, Carries::Lines, self.location.name()).follow(&transfer);
        Ok(transfer.wait()?)
    }

    /// To standard output, in order.
    pub fn to_stdout(&self) -> Result<Report, Failure> {
        let mut out = stdout::raw().map_err(|error| Failure::stdout(&error))?;
        let (writer, mut reader) = stream();
        let (transfer, _armed) = self.start(Landing::Stream(writer))?;
        let _bar =
            Bar::new(self.console, Carries::Bytes, self.location.name()).follow_aside(transfer.watch());
        while let Some(chunk) = reader.next() {
            if let Err(error) = stdout::write(&mut out, chunk) {
                transfer.cancel_switch().cancel();
                drop(reader);
                // The cancelled transfer's own error says nothing that the write's does not.
                let _ = transfer.wait();
                return Err(Failure::stdout(&error));
            }
        }
        Ok(transfer.wait()?)
    }

    fn start(&self, landing: Landing) -> Result<(Transfer, Armed), Error> {
        let mut get = Get::new(self.location.clone(), landing);
        if let Some(span) = self.span {
            get.span = span.clone();
        }
        start(self.client, get, self.console)
    }
}

/// Starts a transfer that a signal cancels while the guard lives.
pub fn start(client: &Client, get: Get, console: &Console) -> Result<(Transfer, Armed), Error> {
    let armed = console.interrupt.arm();
    let transfer = client.get(get)?;
    let switch = transfer.cancel_switch();
    armed.on_signal(move || switch.cancel());
    Ok((transfer, armed))
}
