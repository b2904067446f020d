//! Where the driver says what it does: lines on standard error, which Kubernetes keeps. A line about a volume
//! begins with its name.

use std::fmt;
use std::io::Write;
use std::sync::Arc;

use flatout_engine::{Feature, Hint, Word};
use flatout_mounting::MountLog;

/// Takes lines from any thread.
#[derive(Clone)]
pub struct Log {
    write: Arc<dyn Fn(&str) + Send + Sync>,
}

impl Log {
    pub fn new() -> Log {
        let write = |line: &str| {
            // A log that cannot be written to has nowhere to say so.
            let _ = writeln!(std::io::stderr(), "flatout-csi: {line}");
        };
        Log { write: Arc::new(write) }
    }

    pub fn say(&self, line: &str) {
        (self.write)(line);
    }

    /// The log of one volume.
    pub fn of(&self, volume: &str) -> MountLog {
        let (write, volume) = (self.write.clone(), volume.to_owned());
        MountLog::new(move |line| write(&format!("{volume}: {line}")), worded)
    }
}

impl Default for Log {
    fn default() -> Log {
        Log::new()
    }
}

/// A hint as whoever writes volumes reads it: settings are attributes.
pub fn worded(hint: &Hint) -> String {
    let word = |word: &Word| match word {
        Word::Text(text) => text.to_string(),
        Word::Setting { name: "profile", .. } => "another Secret or role".to_owned(),
        Word::Setting { name, value: None } => (*name).to_owned(),
        Word::Setting { name, value: Some(value) } => format!("{name}: {value}"),
        Word::Feature(feature) => match feature {
            Feature::Stat => "`flatout stat`".to_owned(),
            Feature::List => "`flatout ls`".to_owned(),
            Feature::Read => "`flatout cat`".to_owned(),
            Feature::ShowSettings => "the volume".to_owned(),
            Feature::NameSettings | Feature::ConfigPath => "docs/volume-attributes.md".to_owned(),
            Feature::KeepExisting => "another name".to_owned(),
            Feature::UnmountLazily(folder) => format!("`umount --lazy {folder}`"),
        },
    };
    hint.words().iter().map(word).collect()
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}
