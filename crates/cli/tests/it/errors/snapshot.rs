//! Runs command lines that fail, and writes down what they said without what differs from run to run.

use std::process::Command;

use regex::Regex;

use crate::program::{flatout, run, shell};

/// The text of errors.txt as it grows.
#[derive(Default)]
pub struct Snapshot {
    pub text: String,
    /// What is out of the form that all errors have.
    pub complaints: Vec<String>,
}

/// One command line, and where it runs.
pub struct Case {
    command: Command,
    shown: String,
}

impl Case {
    /// `flatout` with these arguments.
    pub fn new(arguments: &[&str]) -> Case {
        Case { command: flatout(arguments), shown: shown(arguments) }
    }

    /// Run behind a shell's own doing, as `ulimit -f 64` or a redirection: `line` with `flatout …` in
    /// place of `@`.
    pub fn within(line: &str, arguments: &[&str]) -> Case {
        let shown = line.replace('@', &shown(arguments));
        Case { command: shell(&line.replace('@', "\"$0\" \"$@\""), arguments), shown }
    }

    /// With a variable; what is secret in it is not shown.
    pub fn env(mut self, name: &str, value: &str) -> Case {
        let shown = if name.contains("SECRET") || name.contains("TOKEN") { "..." } else { value };
        self.shown = format!("{name}={} {}", shlex::try_quote(shown).unwrap(), self.shown);
        self.command.env(name, value);
        self
    }

    /// With the keys of S3 that the tests' locked origins let in.
    pub fn keys(mut self) -> Case {
        use crate::objects::{ACCESS_KEY, SECRET_KEY};
        self.command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        self
    }

    /// With keys of OSS's own.
    pub fn oss_keys(mut self) -> Case {
        self.command
            .env("OSS_ACCESS_KEY_ID", "LTAIEXAMPLE")
            .env("OSS_ACCESS_KEY_SECRET", "SECRETKEYSECRETKEY");
        self
    }

    /// To give it more of its own surroundings.
    pub fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    /// In a home of its own.
    pub fn home(mut self, path: &std::path::Path) -> Case {
        self.command.env("HOME", path);
        self
    }
}

impl Snapshot {
    /// A heading.
    pub fn section(&mut self, title: &str) {
        self.text += &format!("\n# {title}\n");
    }

    /// Runs `flatout` with these arguments.
    pub fn line(&mut self, arguments: &[&str]) {
        self.run(Case::new(arguments));
    }

    /// Runs it, holds what it says against the form that all errors have, and writes it down.
    pub fn run(&mut self, mut case: Case) {
        let ended = run(&mut case.command);
        let (shown, said) = (steady(&case.shown), steady(&ended.stderr));
        let complaints = said.lines().filter_map(out_of_form);
        self.complaints.extend(complaints.map(|complaint| format!("{shown}\n{complaint}")));
        let code = ended.code.map_or("a signal".to_owned(), |code| code.to_string());
        self.text += &format!("\n$ {shown}\n{said}=> {code}\n");
    }
}

/// As one would type it. What differs from run to run goes first: it may take quotes.
fn shown(arguments: &[&str]) -> String {
    let steady: Vec<String> = arguments.iter().map(|argument| steady(argument)).collect();
    shlex::try_join(std::iter::once("flatout").chain(steady.iter().map(String::as_str))).unwrap()
}

/// Without what differs from run to run: ports, temporary folders, sizes that depend on the moment.
fn steady(text: &str) -> String {
    let temporary =
        format!("{}/\\.tmp[A-Za-z0-9]{{6}}", regex::escape(&std::env::temp_dir().display().to_string()));
    let rules = [
        (temporary.as_str(), "/tmp/DIR"),
        (r"127\.0\.0\.(\d):[1-9]\d{3,4}\b", "127.0.0.$1:PORT"),
        (r", request [^)]*\)", ", request ID)"),
        // What it says depends on whether there is a network.
        (r"(cannot resolve [^:]*): .*", "$1: WHY"),
        (r"\d+ days ahead", "DAYS days ahead"),
        // A program that another test starts has a copy of what is open here until it is that program.
        (
            r"(process \d+ \([^)]*\) has something of it open(; )?)+",
            "process PID (PROGRAM) has something of it open",
        ),
        // As many as files may be opened beside those that are open.
        (r"\d+ at a time", "SOME at a time"),
    ];
    let mut text = text.to_owned();
    for (pattern, to) in rules {
        text = Regex::new(pattern).unwrap().replace_all(&text, to).into_owned();
    }
    text
}

/// What is wrong with a line of `flatout: error: doing: object: cause` or `  hint: …`; of a run of many there
/// are also warnings, each on a line of its own.
fn out_of_form(line: &str) -> Option<String> {
    if !["flatout: ", "  hint: "].iter().any(|start| line.starts_with(start)) {
        return Some(format!("is out of form: {line}"));
    }
    let rust =
        ["(os error", "Os {", "Some(", "None", "Error {", "Err(", "kind:", "panicked", "\\\"", "..=", "()"];
    let blame = ["you must", "illegal", "sorry", "oops", "failed to"];
    if let Some(foreign) = rust.iter().find(|word| line.contains(*word)) {
        return Some(format!("says {foreign:?}, which only Rust understands: {line}"));
    }
    if let Some(blame) = blame.iter().find(|word| line.to_lowercase().contains(*word)) {
        return Some(format!("says {blame:?}: {line}"));
    }
    (line.ends_with('.') && !line.ends_with("...")).then(|| format!("ends with a full stop: {line}"))
}
