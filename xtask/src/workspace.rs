//! The workspace and its tree of crates, from `cargo metadata`.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

pub struct Workspace {
    pub root: PathBuf,
    pub members: Vec<Package>,
}

#[derive(Debug, Clone, Default)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// As written in Cargo.toml; empty when there is none.
    pub licence: String,
    /// Cargo.toml, as an absolute path.
    pub manifest: String,
    pub dependencies: Vec<Dependency>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependency {
    pub name: String,
    /// Only for tests, examples and benches.
    pub dev: bool,
}

impl Workspace {
    /// The members, without resolving what they depend on.
    pub fn load() -> Result<Workspace, String> {
        let metadata = metadata(&["--no-deps"])?;
        let root = metadata["workspace_root"].as_str().ok_or("cargo metadata: no workspace_root")?;
        Ok(Workspace { root: PathBuf::from(root), members: packages(&metadata) })
    }

    /// Every crate that Cargo.lock holds for any platform, the members included.
    pub fn tree(&self) -> Result<Vec<Package>, String> {
        Ok(packages(&metadata(&[])?))
    }
}

fn metadata(more: &[&str]) -> Result<Value, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .args(more)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

fn packages(metadata: &Value) -> Vec<Package> {
    metadata["packages"].as_array().into_iter().flatten().map(package).collect()
}

fn package(value: &Value) -> Package {
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let dependencies = value["dependencies"].as_array().into_iter().flatten();
    Package {
        name: text("name"),
        version: text("version"),
        licence: text("license"),
        manifest: text("manifest_path"),
        dependencies: dependencies.map(dependency).collect(),
    }
}

fn dependency(value: &Value) -> Dependency {
    let name = value["name"].as_str().unwrap_or_default().to_owned();
    Dependency { name, dev: value["kind"].as_str() == Some("dev") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_is_read() {
        let workspace = Workspace::load().unwrap();
        let xtask = workspace.members.iter().find(|member| member.name == "xtask").unwrap();
        assert_eq!(xtask.licence, "MIT OR Apache-2.0");
        assert!(xtask.dependencies.contains(&Dependency { name: "flatout-settings".to_owned(), dev: false }));
        assert!(workspace.root.join("deny.toml").exists());
    }
}
