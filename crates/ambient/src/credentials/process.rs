//! Programs that print keys: `credential_process` of AWS, `process_command` of Alibaba Cloud.

use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use flatout_engine::plain;
use flatout_wire::words::excerpt;

use crate::Environment;

/// Long enough for one that asks a person in a browser.
const PATIENCE: Duration = Duration::from_secs(60);
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// How much of what a program said in its despair is passed on.
const WORDS_MAX: usize = 200;
/// Shorter arguments are options and yes or no.
const ARGUMENT_MIN: usize = 4;

/// Runs a command line, split as a shell does but without one, and returns what it printed.
///
/// # Errors
/// Why there is no output. Of the command only the program's name is shown: its arguments may be secrets.
pub(super) fn run(line: &str, environment: &Environment) -> Result<Vec<u8>, String> {
    run_within(line, environment, PATIENCE)
}

fn run_within(line: &str, environment: &Environment, patience: Duration) -> Result<Vec<u8>, String> {
    let words = shlex::split(line).ok_or("the command line has a quote without its end")?;
    let (program, arguments) = words.split_first().ok_or("the command line is empty")?;
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{name} could not be run: {}", plain(&error)))?;
    let output = collected(child.stdout.take());
    let complaints = collected(child.stderr.take());
    let end = Instant::now() + patience;
    let printed = output.recv_timeout(patience);
    let ended = wait(&mut child, end);
    let (Ok(printed), Some(status)) = (printed, ended) else {
        // Best effort: it may have ended this very moment.
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("{name} did not end within {} s", patience.as_secs_f32()));
    };
    if !status.success() {
        // Whatever it left running may hold standard error open: nobody waits for that.
        let said_words = complaints.recv_timeout(Duration::from_millis(200)).unwrap_or_default();
        return Err(format!("{name} {}{}", how(status), said(&said_words, arguments)));
    }
    Ok(printed)
}

/// Reads a pipe to its end on a thread of its own, so that neither pipe can fill and stop the program.
fn collected(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (done, collected) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            // What came before an error is what there is; nobody may be waiting any more.
            let _ = pipe.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
        }
        let _ = done.send(bytes);
    });
    collected
}

fn wait(child: &mut std::process::Child, end: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(10)),
            _ => return None,
        }
    }
}

fn how(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("ended with code {code}"),
        None => "was ended by a signal".into(),
    }
}

/// The last line of standard error, with the program's arguments and whatever could be a key or a token left
/// out.
fn said(bytes: &[u8], arguments: &[String]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let Some(line) = text.lines().rev().find(|line| !line.trim().is_empty()) else { return String::new() };
    let secret = |argument: &&String| argument.len() >= ARGUMENT_MIN;
    let line = arguments
        .iter()
        .filter(secret)
        .fold(line.trim().to_owned(), |line, argument| line.replace(argument.as_str(), "***"));
    let masked: String = line.split_inclusive(|c: char| !is_of_secret(c)).map(masked).collect();
    format!(": {}", excerpt(&masked, WORDS_MAX))
}

/// Base64 in both alphabets, hex, and what ids are made of.
fn is_of_secret(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '_' | '-' | '.' | '~')
}

/// Long words with digits and letters in them look like keys; a path in lower case does not.
fn masked(word: &str) -> String {
    let body = word.trim_end_matches(|c: char| !is_of_secret(c));
    let has = |test: fn(&char) -> bool| body.chars().any(|c| test(&c));
    let mixed = has(|c| c.is_ascii_digit()) && has(|c| c.is_ascii_alphabetic());
    let is_path = body.contains('/') && !has(|c| c.is_ascii_uppercase());
    match body.len() >= 12 && mixed && !is_path {
        true => format!("***{}", &word[body.len()..]),
        false => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, patience_ms: u64, expected: Result<&str, &str>) {
        let environment = std::env::vars_os().collect();
        let ran = run_within(line, &environment, Duration::from_millis(patience_ms));
        match (ran, expected) {
            (Ok(printed), Ok(expected)) => assert_eq!(String::from_utf8_lossy(&printed), expected),
            (Err(why), Err(expected)) => assert_eq!(why, expected),
            (ran, _) => panic!("{line}: {ran:?}"),
        }
    }

    #[test]
    fn output_comes_whole_and_failures_say_no_secret() {
        check(r#"printf '%s' 'a "b"'"#, 60_000, Ok(r#"a "b""#));
        check("sh -c 'echo noise >&2; echo out'", 60_000, Ok("out\n"));
        check(
            "/no/such/program --secret s3cr3t",
            60_000,
            Err("program could not be run: No such file or directory"),
        );
        check(
            "sh -c 'echo first >&2; echo no login >&2; exit 3' s3cr3t",
            60_000,
            Err("sh ended with code 3: no login"),
        );
        check("sh -c 'kill -9 $$'", 60_000, Err("sh was ended by a signal"));
        check("sleep 600", 50, Err("sleep did not end within 0.05 s"));
        check("sh 'x", 60_000, Err("the command line has a quote without its end"));
        check("", 60_000, Err("the command line is empty"));
    }

    #[test]
    fn a_flood_does_not_stop_it() {
        let environment = std::env::vars_os().collect();
        let line = "sh -c 'head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero'";
        assert_eq!(run(line, &environment).unwrap().len(), 300_000);
    }

    #[test]
    fn what_looks_like_a_key_is_left_out() {
        let check = |line: &str, expected: &str| {
            assert_eq!(said(line.as_bytes(), &["-x".into(), "hunter2".into()]), expected)
        };
        check("", "");
        check("bad key AKIAIOSFODNN7EXAMPLE, try again", ": bad key ***, try again");
        check("secret=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ": ***");
        check("token eyJhbGciOi.eyJzdWIiOiIxMj.x1\n\n", ": token ***");
        check("cannot open /usr/lib/python3/config.json", ": cannot open /usr/lib/python3/config.json");
        check("not authenticated", ": not authenticated");
        check("wrong password hunter2 for -x", ": wrong password *** for -x");
    }
}
