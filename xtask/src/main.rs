//! The project's own chores: `cargo xtask tidy`, `licences`, `docs`, `proto` and `test`.

#![forbid(unsafe_code)]

mod arrows;
mod code;
mod complaint;
mod english;
mod flags;
mod licences;
mod modules;
#[cfg(feature = "proto")]
mod proto;
mod reach;
mod roads;
mod shape;
mod sources;
mod testing;
mod unsafety;
mod uses;
mod workspace;

use std::process::ExitCode;
use std::{env, fs};

use complaint::Complaint;
use sources::Sources;
use workspace::Workspace;

const SETTINGS_PAGE: &str = "docs/settings.md";
const SETTINGS_TYPE: &str = "crates/python/python/flatout/_settings.py";

const USAGE: &str = "\
cargo xtask tidy        checks the rules that the compiler does not (CONTRIBUTING.md)
cargo xtask licences    checks that every crate of the tree has a licence that deny.toml allows
cargo xtask docs        writes docs/settings.md and the Python package's type from the settings
cargo xtask proto       says how crates/csi/src/generated is made of crates/csi/proto";

fn main() -> ExitCode {
    let command = env::args().nth(1).unwrap_or_default();
    let outcome = match command.as_str() {
        "tidy" => tidy(),
        "licences" => licences(),
        "docs" => docs(),
        "test" => test(),
        #[cfg(feature = "proto")]
        "proto" => {
            let checks = env::args().nth(2).is_some_and(|argument| argument == "--check");
            Workspace::load().and_then(|workspace| proto::make(&workspace.root, checks))
        }
        #[cfg(not(feature = "proto"))]
        "proto" => Err("write cargo run -p xtask --features proto -- proto [--check]".to_owned()),
        _ => Err(format!("unknown chore '{command}', write one of:\n{USAGE}\n{}", testing::USAGE)),
    };
    match outcome {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::FAILURE
        }
    }
}

fn tidy() -> Result<String, String> {
    let workspace = Workspace::load()?;
    let sources = Sources::read(&workspace.root)?;
    let mut complaints = arrows::check(&workspace.members);
    complaints.extend(licences::check_members(&workspace.members));
    complaints.extend(unsafety::check(&sources));
    complaints.extend(reach::check(&sources));
    complaints.extend(flags::check(&sources));
    complaints.extend(shape::check(&sources));
    complaints.extend(english::check(&sources));
    complaints.extend(roads::check(&sources));
    complaints.extend(modules::check(&sources));
    complaints.extend(settings_page(&sources));
    complaints.extend(settings_type(&workspace));
    verdict(
        complaints,
        &format!("tidy: {} files, {} crates: all well", sources.rust.len(), workspace.members.len()),
    )
}

fn licences() -> Result<String, String> {
    let workspace = Workspace::load()?;
    let deny = fs::read_to_string(workspace.root.join("deny.toml"))
        .map_err(|error| format!("deny.toml: {error}"))?;
    let allowed = licences::allowed(&deny)?;
    let packages = workspace.tree()?;
    let complaints = licences::check_tree(&packages, &allowed);
    verdict(complaints, &format!("licences: {} crates: all allowed", packages.len()))
}

fn docs() -> Result<String, String> {
    let root = Workspace::load()?.root;
    let written =
        [(SETTINGS_PAGE, flatout_settings::markdown()), (SETTINGS_TYPE, flatout_settings::python())];
    for (path, text) in written {
        fs::write(root.join(path), text).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(format!("{SETTINGS_PAGE}, {SETTINGS_TYPE}: written"))
}

fn test() -> Result<String, String> {
    let arguments: Vec<String> = env::args().skip(2).collect();
    testing::run(&Workspace::load()?.root, &arguments)
}

fn settings_page(sources: &Sources) -> Option<Complaint> {
    let same = sources
        .pages
        .iter()
        .any(|page| page.path == SETTINGS_PAGE && page.text == flatout_settings::markdown());
    (!same).then(|| {
        Complaint::new(
            SETTINGS_PAGE,
            0,
            "is not what crates/settings generates: run `cargo xtask docs` and commit it",
        )
    })
}

fn settings_type(workspace: &Workspace) -> Option<Complaint> {
    let there = fs::read_to_string(workspace.root.join(SETTINGS_TYPE)).unwrap_or_default();
    (there != flatout_settings::python()).then(|| {
        Complaint::new(
            SETTINGS_TYPE,
            0,
            "is not what crates/settings generates: run `cargo xtask docs` and commit it",
        )
    })
}

fn verdict(mut complaints: Vec<Complaint>, well: &str) -> Result<String, String> {
    if complaints.is_empty() {
        return Ok(well.to_owned());
    }
    complaints.sort();
    let lines: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    Err(format!("{}\n{} to put right", lines.join("\n"), complaints.len()))
}
