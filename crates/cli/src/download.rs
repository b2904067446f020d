//! One object to a file or to standard output, with a bar where one is wanted and signals heeded.

use std::path::Path;
use std::time::Instant;

use flatout_engine::{Client, Error, Get, Landing, Progress, Report, Transfer, stream};
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

/// What became of it, and what it took whether it failed or not.
pub struct Outcome {
    pub result: Result<Report, Failure>,
    /// Bytes received, those received twice included.
    pub fetched_bytes: u64,
    pub retries: u32,
    pub seconds: f64,
}

impl Download<'_> {
    /// Into a file, which the engine shows under its name only when it is whole and verified.
    /// With `keep_existing` it is not shown where another one has appeared there meanwhile.
    pub fn to_file(&self, path: &Path, keep_existing: bool) -> Outcome {
        let get = self.get(Landing::File(path.to_path_buf()));
        self.run(if keep_existing { get.keeping_existing() } else { get }, |transfer| {
            Bar::new(self.console, Carries::Lines, self.location.name()).follow(&transfer);
            Ok(transfer.wait()?)
        })
    }

    /// To standard output, in order.
    pub fn to_stdout(&self) -> Outcome {
        let (writer, mut reader) = stream();
        self.run(self.get(Landing::Stream(writer)), |transfer| {
            let mut out = stdout::raw().map_err(|error| Failure::stdout(&error))?;
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
        })
    }

    fn run(&self, get: Get, deliver: impl FnOnce(Transfer) -> Result<Report, Failure>) -> Outcome {
        let begun = Instant::now();
        let (progress, result) = match start(self.client, get, self.console) {
            Ok((transfer, _armed)) => {
                let watch = transfer.watch();
                let result = deliver(transfer);
                (watch.progress(), result)
            }
            Err(error) => (Progress::default(), Err(error.into())),
        };
        let Progress { fetched_bytes, retries, .. } = progress;
        Outcome { result, fetched_bytes, retries, seconds: begun.elapsed().as_secs_f64() }
    }

    fn get(&self, landing: Landing) -> Get {
        let mut get = Get::new(self.location.clone(), landing);
        if let Some(span) = self.span {
            get.span = span.clone();
        }
        get
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
