//! `--report FILE`: what became of each object, a line of JSON each, whatever the terminal shows.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueHint;

use crate::failure::Failure;

/// The flag.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ReportTo {
    /// Also write a line of JSON to FILE for each object: what became of it, and why (docs/json.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub report: Option<PathBuf>,
}

/// The file, shared by the lines of `flatout run`.
#[derive(Clone)]
pub struct Report(Arc<Mutex<Open>>);

struct Open {
    path: PathBuf,
    out: BufWriter<File>,
    /// The first error: what came after it is not there.
    refused: Option<io::Error>,
}

impl Report {
    /// Makes the file, or empties the one that is there: before anything is done that it would tell of.
    pub fn create(path: &Path) -> Result<Report, Failure> {
        let file = File::create(path).map_err(|error| Failure::local("write", path.display(), &error))?;
        let open = Open { path: path.to_path_buf(), out: BufWriter::new(file), refused: None };
        Ok(Report(Arc::new(Mutex::new(open))))
    }

    pub fn write(&self, line: &str) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.refused.is_none() {
            open.refused = writeln!(open.out, "{line}").err();
        }
    }

    /// Pushes out the rest; an error where a line is missing.
    pub fn finish(&self) -> Result<(), Failure> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = match open.refused.take() {
            Some(refused) => refused,
            None => match open.out.flush() {
                Ok(()) => return Ok(()),
                Err(refused) => refused,
            },
        };
        Err(Failure::local("write", open.path.display(), &refused))
    }
}
