//! How the lab's programs talk: `ready` when what a process makes once is there, `done BYTES` after `go`, or
//! `failed WHY`.

use std::collections::HashMap;
use std::error::Error;
use std::io::{self, BufRead, Read};
use std::process::ExitCode;

/// Of many objects: what those cases are about.
pub const IN_FLIGHT: usize = 128;

pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The arguments, each a flag with a value: `--key big`.
pub struct Arguments(HashMap<String, String>);

impl Arguments {
    pub fn read() -> Result<Arguments> {
        let mut words = std::env::args().skip(1);
        let mut values = HashMap::new();
        while let Some(word) = words.next() {
            let flag =
                word.strip_prefix("--").ok_or(format!("{word}: a flag was expected, such as --key"))?;
            let value = words.next().ok_or(format!("--{flag}: a value was expected after it"))?;
            values.insert(flag.to_owned(), value);
        }
        Ok(Arguments(values))
    }

    pub fn find(&self, flag: &str) -> Option<&str> {
        self.0.get(flag).map(String::as_str)
    }

    pub fn get(&self, flag: &str) -> Result<&str> {
        self.find(flag).ok_or_else(|| format!("--{flag} is missing").into())
    }

    pub fn number(&self, flag: &str) -> Result<Option<u64>> {
        let number =
            |text: &str| text.parse().map_err(|_| format!("--{flag} {text}: a number was expected").into());
        self.find(flag).map(number).transpose()
    }

    /// One key a line.
    pub fn keys(&self) -> Result<Vec<String>> {
        let path = self.get("keys")?;
        let list = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(list.lines().map(str::to_owned).collect())
    }
}

/// Says `ready` and waits for the word; without it the lab has gone and nothing is to be done.
pub fn ready() -> Result<bool> {
    println!("ready");
    let mut word = String::new();
    io::stdin().lock().read_line(&mut word)?;
    Ok(word == "go\n")
}

/// Says how it went; the lab reads the clocks of this process before it lets go.
pub fn finish(delivered: Result<Option<u64>>) -> ExitCode {
    match delivered {
        Ok(Some(bytes)) => {
            println!("done {bytes}");
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            ExitCode::SUCCESS
        }
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed {}", reasons(&*error).replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn reasons(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        said = format!("{said}: {cause}");
        source = cause.source();
    }
    said
}
