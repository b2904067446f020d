//! Every property over its corpus, over what chance makes of that corpus, and over whatever else chance brings.

mod answers;
mod corpus;
mod large;
mod made;

use std::fs;
use std::path::{Path, PathBuf};

use flatout_properties::{TARGETS, Target};

/// The files of a target's corpus, by name.
fn corpus_of(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), fs::read(&file).expect("a file"))).collect()
}

fn target(name: &str) -> Target {
    TARGETS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name} is no target")).1
}
