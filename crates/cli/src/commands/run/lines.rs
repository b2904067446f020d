//! The lines of a run: read as a stream, split into words as sh(1) does, parsed as the command line itself.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches};
use shlex::Shlex;

use crate::args::{Command, Cp, Line};
use crate::failure::Failure;
use crate::refusal;

/// A line that is longer is no command: some file is not what it was taken for.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// The commands of a file, a line each.
pub struct Lines {
    input: BufReader<Box<dyn Read + Send>>,
    /// As messages name it.
    name: String,
    is_file: bool,
    /// Of a file.
    length: Option<u64>,
    read_bytes: u64,
    number: u64,
}

/// A line that is neither blank nor a comment.
pub struct Numbered {
    /// As editors count, from 1.
    pub number: u64,
    /// Its text, or why it is none.
    pub text: Result<String, Failure>,
}

impl Lines {
    /// Those of a file, or of standard input where there is none, or it is called `-`.
    pub fn open(path: Option<&Path>) -> Result<Lines, Failure> {
        let path = path.filter(|path| *path != Path::new("-"));
        let name = path.map_or("standard input".to_owned(), |path| path.display().to_string());
        let Some(path) = path else {
            return Ok(Lines::of(Box::new(io::stdin()), name));
        };
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (found, file) = opened.map_err(|error| unreadable(&name, &error))?;
        if found.is_dir() {
            let failure =
                Failure::usage(format!("run: {name}: is a folder, and a file of commands is wanted"));
            return Err(failure.with_hint("write a command into each line of a file, or on standard input"));
        }
        let length = found.is_file().then_some(found.len());
        Ok(Lines { is_file: found.is_file(), length, ..Lines::of(Box::new(file), name) })
    }

    fn of(input: Box<dyn Read + Send>, name: String) -> Lines {
        let input = BufReader::with_capacity(64 << 10, input);
        Lines { input, name, is_file: false, length: None, read_bytes: 0, number: 0 }
    }

    /// As messages name where they come from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The length of the file, where it is one.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// Bytes of lines so far.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// The next command.
    ///
    /// # Errors
    /// The file cannot be read on.
    pub fn next(&mut self) -> Result<Option<Numbered>, Failure> {
        loop {
            let Some(line) = self.next_line()? else { return Ok(None) };
            let refused = match line {
                Text::Of(bytes) => match String::from_utf8(bytes) {
                    Ok(text) if is_left_out(&text) => continue,
                    Ok(text) => Ok(text),
                    Err(_) => Err("it is not UTF-8"),
                },
                Text::TooLong => Err("it is longer than 1MiB"),
            };
            let text = refused.map_err(|why| {
                let failure = Failure::usage(format!("run: {}: {why}", self.name));
                failure.with_hint("a line is a command, as in: cp s3://BUCKET/KEY FILE")
            });
            return Ok(Some(Numbered { number: self.number, text }));
        }
    }

    /// How many commands are left; `None` where nobody knows before whoever writes them is done.
    pub fn count_rest(&mut self) -> Option<u64> {
        let mut count = 0;
        while self.is_file {
            match self.next() {
                Ok(Some(_)) => count += 1,
                Ok(None) => return Some(count),
                Err(_) => return None,
            }
        }
        None
    }

    fn next_line(&mut self) -> Result<Option<Text>, Failure> {
        let mut line = Vec::new();
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let mut read = read.map_err(|error| self.broken(&error))? as u64;
        self.read_bytes += read;
        self.number += u64::from(read > 0);
        let text = match read {
            0 => return Ok(None),
            LINE_BYTES_MAX if line.last() != Some(&b'\n') => Text::TooLong,
            _ => return Ok(Some(Text::Of(line))),
        };
        // The rest of it is read piece by piece, and dropped.
        while read > 0 && line.last() != Some(&b'\n') {
            line.clear();
            let more = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            read = more.map_err(|error| self.broken(&error))? as u64;
            self.read_bytes += read;
        }
        Ok(Some(text))
    }

    fn broken(&self, error: &io::Error) -> Failure {
        let name = PathBuf::from(&self.name);
        let failure = Failure::local("run", name.display(), error);
        Failure { message: format!("{}, behind line {}", failure.message, self.number), ..failure }
    }
}

enum Text {
    Of(Vec<u8>),
    TooLong,
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    let failure = Failure::local("run", name, error);
    match error.kind() {
        io::ErrorKind::NotFound => failure.with_hint("check the path: a file with a command in each line"),
        _ => failure,
    }
}

/// Whether nothing is asked for: the line is blank or a comment.
fn is_left_out(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// The words of a line, without the name of the program in front.
pub fn words(line: &str) -> Result<Vec<String>, Failure> {
    let mut split = Shlex::new(line.trim());
    let words: Vec<String> = split.by_ref().collect();
    if split.had_error {
        let failure = Failure::usage("run: a quote is not closed, or a backslash ends the line");
        return Err(failure.with_hint("a quote that is meant is written \\' or \\\""));
    }
    let is_named = words.first().is_some_and(|word| word == "flatout" || word == "s5cmd");
    let words = words.into_iter().skip(usize::from(is_named)).collect::<Vec<_>>();
    match words.is_empty() {
        true => Err(Failure::usage("run: names no command").with_hint("as in: cp s3://BUCKET/KEY FILE")),
        false => Ok(words),
    }
}

/// Parses lines as the command line itself is parsed. The tree of commands, which takes a millisecond to
/// make, serves one line after the other.
#[derive(Default)]
pub struct Parsers {
    idle: Mutex<Vec<clap::Command>>,
    /// A copy without flags, as it was parsed once.
    plain_copy: OnceLock<Option<Cp>>,
}

impl Parsers {
    pub fn parse(&self, words: Vec<String>) -> Result<Line, Failure> {
        match self.plain_copy(&words) {
            Some(copy) => {
                let command = Command::Cp(Box::new(copy));
                Ok(Line { command, json: false, quiet: false, no_progress: false })
            }
            None => self.parse_by_clap(words),
        }
    }

    /// Most lines of most files are copies without flags. To parse each anew would take a third of all that
    /// is done for a small object: they differ from the first in source and target alone.
    fn plain_copy(&self, words: &[String]) -> Option<Cp> {
        let [command, source, target] = words else { return None };
        let is_plain = |word: &String| !word.is_empty() && !word.starts_with('-');
        if command != "cp" || !is_plain(source) || !is_plain(target) {
            return None;
        }
        let parsed = self.plain_copy.get_or_init(|| match self.parse_by_clap(words.to_vec()) {
            Ok(Line { command: Command::Cp(copy), json: false, quiet: false, .. }) => Some(*copy),
            _ => None,
        });
        let copy = parsed.as_ref()?.clone();
        Some(Cp { source: source.clone(), target: target.clone(), ..copy })
    }

    fn parse_by_clap(&self, words: Vec<String>) -> Result<Line, Failure> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut parser = idle.unwrap_or_else(Line::command);
        let arguments = std::iter::once("flatout".to_owned()).chain(words);
        let parsed = parser.try_get_matches_from_mut(arguments).and_then(|mut matches| {
            let line = Line::from_arg_matches_mut(&mut matches);
            line.map_err(|refused| refused.format(&mut parser))
        });
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(parser);
        parsed.map_err(|refused| match refused.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let failure = Failure::usage("run: help is not for a line");
                failure.with_hint("`flatout help COMMAND` shows it")
            }
            _ => refusal::failure(&refused),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_s5cmd_does() {
        let check = |line: &str, expected: &[&str]| assert_eq!(words(line).unwrap(), expected, "{line}");
        check("cp s3://b/k .", &["cp", "s3://b/k", "."]);
        check("  cp\ta   b \r\n", &["cp", "a", "b"]);
        check("cp 'a b' \"c d\" e\\ f", &["cp", "a b", "c d", "e f"]);
        check("cp 's3://b/test #3 /x' s3://b/test\\ #3/x", &["cp", "s3://b/test #3 /x", "s3://b/test #3/x"]);
        check("cp 'don'\\''t' b\"a\"r", &["cp", "don't", "bar"]);
        check(r#"cp "\$x \`y \" \\ \d" '\$'"#, &["cp", r#"$x `y " \ \d"#, r"\$"]);
        check("cp s3://b/*.gz $HOME ~/x {a,b}", &["cp", "s3://b/*.gz", "$HOME", "~/x", "{a,b}"]);
        check("cp '' ü#", &["cp", "", "ü#"]);
        check("rm s3://b/k # and why", &["rm", "s3://b/k"]);
        check("s5cmd rm s3://b/k", &["rm", "s3://b/k"]);
        check("flatout rm s3://b/k", &["rm", "s3://b/k"]);
        check("rm flatout", &["rm", "flatout"]);
        for line in ["cp 'a b", "cp \"a' b", "cp a\\", "cp don't", "flatout", "s5cmd  "] {
            assert!(words(line).is_err(), "{line}");
        }
    }

    fn of(bytes: &'static [u8]) -> Lines {
        Lines::of(Box::new(bytes), "x".into())
    }

    #[test]
    fn lines_are_numbered_as_editors_do() {
        let mut lines = of(b"# first\n\n cp a b\r\n  # more\n\nrm \xff\nls");
        let mut found = Vec::new();
        while let Some(Numbered { number, text }) = lines.next().unwrap() {
            found.push((number, text.ok()));
        }
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(found, [(3, text(" cp a b\r\n")), (6, None), (7, text("ls"))]);
        assert_eq!(lines.read_bytes(), 35);
    }

    #[test]
    fn a_line_without_end_is_not_held() {
        let long = io::repeat(b'x').take(3 * LINE_BYTES_MAX + 5).chain(&b"\nls\n"[..]);
        let mut lines = Lines::of(Box::new(long), "x".into());
        let first = lines.next().unwrap().unwrap();
        assert!(first.text.unwrap_err().message.contains("longer than 1MiB"));
        let second = lines.next().unwrap().unwrap();
        assert_eq!((second.number, second.text.unwrap().as_str()), (2, "ls\n"));
        assert!(lines.next().unwrap().is_none());
    }

    #[test]
    fn the_parser_serves_line_after_line() {
        let parsers = Parsers::default();
        let parse = |line: &str| parsers.parse(words(line).unwrap());
        for _ in 0..3 {
            assert!(parse("cp -r s3://b/k/ x --include '*.gz' --parallel 3").is_ok());
            assert!(parse("rm s3://b/k").is_ok());
            assert!(parse("cpp a b").unwrap_err().message.contains("no command 'cpp'"));
            assert!(parse("cp a").unwrap_err().message.contains("<DST> is missing"));
            assert!(parse("cp --help").unwrap_err().message.contains("help is not for a line"));
        }
        assert_eq!(parsers.idle.lock().unwrap().len(), 1);
    }

    #[test]
    fn copies_without_flags_are_as_clap_has_them() {
        let parsers = Parsers::default();
        for line in ["cp s3://b/k x", "cp a s3://b/", "cp 's3://b/*' 'x y'"] {
            let words = words(line).unwrap();
            assert!(parsers.plain_copy(&words).is_some(), "{line}");
            let both = [parsers.parse(words.clone()), parsers.parse_by_clap(words)];
            let [quick, plain] = both.map(|line| format!("{:?}", line.unwrap()));
            assert_eq!(quick, plain);
        }
        for line in ["cp - s3://b/k", "cp -r x y", "cp x", "cp '' y", "mv a b", "cp a b c"] {
            assert!(parsers.plain_copy(&words(line).unwrap()).is_none(), "{line}");
        }
    }
}
