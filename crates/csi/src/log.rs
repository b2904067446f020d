//! Where the driver says what it does: lines on standard error, which Kubernetes keeps. A line about a volume
//! begins with its name.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use flatout_engine::Hint;
use flatout_mounting::MountLog;

/// Takes lines from any thread.
#[derive(Clone)]
pub struct Log {
    write: Arc<dyn Fn(&str) + Send + Sync>,
    words: fn(&Hint) -> String,
}

impl Log {
    /// `words` says a hint as users know settings and commands.
    pub fn new(words: fn(&Hint) -> String) -> Log {
        let write = |line: &str| {
            // A log that cannot be written to has nowhere to say so.
            let _ = writeln!(std::io::stderr(), "flatout-csi: {line}");
        };
        Log { write: Arc::new(write), words }
    }

    pub fn say(&self, line: &str) {
        (self.write)(line);
    }

    /// The log of one volume.
    pub fn of(&self, volume: &str) -> MountLog {
        let (write, volume) = (self.write.clone(), volume.to_owned());
        MountLog::new(move |line| write(&format!("{volume}: {line}")), self.words)
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}
