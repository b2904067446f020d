//! What a bug report has to know of the build: compiler, target, libraries, and of a release the commit.
//! Reads files that are there and asks the compiler for its version; without git, or without the lock file,
//! it says less.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Of what the lock file names, what a bug may lie in.
const LIBRARIES: [&str; 5] = ["aws-lc-rs", "hyper", "reqsign-core", "rustls", "tokio"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let variable = |name: &str| env::var(name).unwrap_or_default();
    tell("TARGET", &variable("TARGET"));
    tell("PROFILE", &variable("PROFILE"));
    tell("RUSTC", &version_of(&variable("RUSTC")));
    let workspace = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    tell("LIBRARIES", &libraries(&workspace.join("Cargo.lock")));
    // Only of a release: it would have every build after a commit compile this crate again.
    if variable("PROFILE") == "release" {
        tell("COMMIT", &commit(&workspace.join(".git")).unwrap_or_default());
    }
}

fn tell(name: &str, value: &str) {
    println!("cargo::rustc-env=BUILD_{name}={value}");
}

fn version_of(rustc: &str) -> String {
    let said = Command::new(rustc).arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    said.unwrap_or_default()
}

/// `hyper 1.12.0, rustls 0.23.44`
fn libraries(lock: &Path) -> String {
    let Ok(text) = fs::read_to_string(lock) else { return String::new() };
    println!("cargo::rerun-if-changed={}", lock.display());
    let value = |line: &str, key: &str| Some(line.strip_prefix(key)?.trim_matches('"').to_owned());
    let packages = text.split("[[package]]").filter_map(|package| {
        let name = package.lines().find_map(|line| value(line, "name = "))?;
        let version = package.lines().find_map(|line| value(line, "version = "))?;
        LIBRARIES.contains(&name.as_str()).then(|| format!("{name} {version}"))
    });
    packages.collect::<Vec<_>>().join(", ")
}

/// What HEAD means, read from git's files: a folder, or in a worktree a file that names one.
fn commit(git: &Path) -> Option<String> {
    let folder = match fs::read_to_string(git) {
        Ok(pointer) => git.parent()?.join(pointer.trim().strip_prefix("gitdir: ")?),
        Err(_) => git.to_owned(),
    };
    let head = watched(&folder.join("HEAD"))?;
    // A line more with every commit, wherever the branch itself is written.
    let _ = watched(&folder.join("logs/HEAD"));
    let Some(name) = head.strip_prefix("ref: ") else { return Some(head) };
    let shared = fs::read_to_string(folder.join("commondir")).map(|path| folder.join(path.trim()));
    let folders = [folder.clone(), shared.unwrap_or_else(|_| folder.clone())];
    let loose = folders.iter().find_map(|folder| watched(&folder.join(name)));
    loose.or_else(|| {
        let packed = watched(&folders[1].join("packed-refs"))?;
        let line = packed.lines().find(|line| line.ends_with(&format!(" {name}")))?;
        line.split(' ').next().map(str::to_owned)
    })
}

/// The text of a file whose change makes this run again.
fn watched(path: &PathBuf) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    println!("cargo::rerun-if-changed={}", path.display());
    Some(text.trim().to_owned())
}
