//! Every error that a command line can cause, side by side, in errors.txt: to be read in one go, as a
//! stranger would, when a text changes. `FLATOUT_BLESS=1 cargo test -p flatout-cli --test it errors::` writes
//! the file anew; what then differs in git is to be judged like code.

mod access;
mod local;
mod many;
mod mount;
mod network;
mod settings;
mod snapshot;
mod usage;

use std::path::Path;

use snapshot::Snapshot;

const FILE: &str = "tests/it/errors.txt";

#[test]
fn all_error_texts_side_by_side() {
    let mut snapshot = Snapshot::default();
    usage::all(&mut snapshot);
    settings::all(&mut snapshot);
    access::all(&mut snapshot);
    network::all(&mut snapshot);
    local::all(&mut snapshot);
    many::all(&mut snapshot);
    mount::all(&mut snapshot);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("FLATOUT_BLESS").is_some() {
        std::fs::write(&path, &snapshot.text).unwrap();
    }
    assert_eq!(snapshot.complaints, [""; 0], "{}", snapshot.complaints.join("\n"));
    let blessed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        blessed == snapshot.text,
        "what is said has changed. If it is better now: FLATOUT_BLESS=1 cargo test -p flatout-cli --test it errors::\n{}",
        difference(&blessed, &snapshot.text)
    );
}

/// The blocks that only one of both has.
fn difference(before: &str, now: &str) -> String {
    let missing = |of: &str, from: &str, sign: &str| -> String {
        let from: Vec<&str> = from.split("\n\n").collect();
        let gone = of.split("\n\n").filter(|block| !from.contains(block));
        gone.flat_map(str::lines).map(|line| format!("{sign} {line}\n")).collect()
    };
    missing(before, now, "-") + &missing(now, before, "+")
}

#[test]
fn a_difference_names_what_changed_only() {
    assert_eq!(difference("a\nb\n\nc", "a\nb\n\nd"), "- c\n+ d\n");
}
