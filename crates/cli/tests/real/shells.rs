//! Completions in the shells that they are for, and manual pages before those who read and check them.

use std::fs;
use std::process::Command;

use crate::flatout;
use crate::guard::{installed, on_path};
use crate::program::{Ended, run};

/// The script for a shell, in a file of its own named as that shell wants it.
fn script(shell: &str, name: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let script = run(&mut flatout(&["completions", shell])).clean().stdout;
    let path = folder.path().join(name);
    fs::write(&path, script).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

/// A program of the machine, away from its user's own settings.
fn tool(name: &str, arguments: &[&str]) -> Ended {
    let mut command = Command::new(installed(name, &on_path(name)));
    command.args(arguments).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // fish makes its folders there.
    let home = tempfile::tempdir().unwrap();
    run(command.env("HOME", home.path()).env("LC_ALL", "C.UTF-8"))
}

/// What bash offers for the last of these words, of which the first is `flatout`.
#[track_caller]
fn check_bash(script: &str, words: &[&str], offered: &[&str], not: &[&str]) {
    // compopt has a word to say only within a completion that a person asked for.
    let line = "compopt() { :; }; source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                name=$(complete -p flatout | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
                $name flatout \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let ended = tool("bash", &[&["--norc", "-c", line, "bash", script], words].concat()).clean();
    let found: Vec<&str> = ended.text().lines().collect();
    for each in offered {
        assert!(found.contains(each), "{words:?}: {each} is not among {found:?}");
    }
    for each in not {
        assert!(!found.contains(each), "{words:?}: {each} is among {found:?}");
    }
}

#[test]
fn bash_completes_commands_flags_and_values() {
    let (_folder, script) = script("bash", "flatout");
    check_bash(&script, &["flatout", ""], &["cp", "serve", "completions"], &["__drain", "__bench-child"]);
    check_bash(&script, &["flatout", "bench", ""], &["get", "sweep", "demo"], &["peer"]);
    check_bash(&script, &["flatout", "cp", "--p"], &["--parallel", "--part-size", "--profile"], &["--range"]);
    check_bash(&script, &["flatout", "cp", "--addressing", ""], &["auto", "path", "virtual"], &["--json"]);
    check_bash(&script, &["flatout", "cp", "--oss-signature", "v"], &["v4", "v1"], &[]);
    check_bash(&script, &["flatout", "completions", ""], &["bash", "zsh", "fish"], &[]);
    check_bash(&script, &["flatout", "bench", "demo", "--"], &["--size", "--parallel"], &["--endpoint-url"]);
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("bundle.pem"), "").unwrap();
    let (start, whole) = (here.path().join("bun"), here.path().join("bundle.pem"));
    let words = ["flatout", "cp", "--ca-bundle", start.to_str().unwrap()];
    check_bash(&script, &words, &[whole.to_str().unwrap()], &[]);
}

#[test]
fn fish_completes_commands_flags_and_values() {
    let (_folder, script) = script("fish", "flatout.fish");
    let check = |typed: &str, offered: &[&str], not: &[&str]| {
        let line = format!("source {script}; complete --do-complete '{typed}'");
        let ended = tool("fish", &["--no-config", "-c", &line]).clean();
        let found: Vec<&str> = ended.text().lines().filter_map(|line| line.split('\t').next()).collect();
        assert!(
            offered.iter().all(|each| found.contains(each)),
            "{typed}: {found:?} lacks some of {offered:?}"
        );
        assert!(not.iter().all(|each| !found.contains(each)), "{typed}: {found:?} has some of {not:?}");
    };
    check("flatout ", &["cp", "serve"], &["__drain", "__bench-child"]);
    check("flatout bench ", &["get", "sweep"], &["peer"]);
    check("flatout cp --addressing ", &["auto", "path", "virtual"], &[]);
    check("flatout cp --part", &["--part-size"], &[]);
}

#[test]
fn zsh_takes_the_function_for_the_command() {
    let (folder, _script) = script("zsh", "_flatout");
    let line = "fpath=($1 $fpath); autoload -Uz compinit; compinit -D -u; print $_comps[flatout]; \
                autoload +X _flatout; whence -w _flatout";
    let ended = tool("zsh", &["-f", "-c", line, "zsh", folder.path().to_str().unwrap()]).clean();
    assert_eq!(ended.text(), "_flatout\n_flatout: function\n");
}

#[test]
fn manual_pages_are_clean_and_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    fs::create_dir(&pages).unwrap();
    let written = run(&mut flatout(&["man", pages.to_str().unwrap()])).clean();
    let written: Vec<&str> = written.text().lines().collect();
    assert!(written.iter().any(|page| page.ends_with("/flatout-bench-get.1")), "{written:?}");
    for page in &written {
        let checked = tool("mandoc", &["-T", "lint", "-W", "warning", page]);
        assert_eq!((checked.code, checked.text()), (Some(0), ""), "{page}");
        let read = tool("man", &["--warnings", "--encoding=UTF-8", "--local-file", page]).clean();
        for section in ["NAME", "SYNOPSIS", "EXIT STATUS", "SEE ALSO"] {
            assert!(read.text().contains(section), "{page} lacks {section}:\n{}", read.text());
        }
    }
    let first = run(&mut flatout(&["man"])).clean();
    assert_eq!(first.stdout, fs::read(pages.join("flatout.1")).unwrap());
}
