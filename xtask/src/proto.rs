//! The Rust of CSI's messages and services, made of crates/csi/proto/csi.proto. No protoc is needed.

use std::path::Path;

const FOLDER: &str = "crates/csi/proto";
const MADE: &str = "crates/csi/src/generated";
const FILE: &str = "csi.v1.rs";
/// Services that no part of the driver has.
const LEFT_OUT: [&str; 2] = ["GroupController", "SnapshotMetadata"];

/// Writes it, or says whether it is what would be written.
pub fn make(root: &Path, checks: bool) -> Result<String, String> {
    let wrong = |error: protox::Error| error.to_string();
    let mut compiler = protox::Compiler::new([root.join(FOLDER)]).map_err(wrong)?;
    compiler.include_imports(true).open_file("csi.proto").map_err(wrong)?;
    let mut files = compiler.file_descriptor_set();
    for file in &mut files.file {
        file.service.retain(|service| !LEFT_OUT.contains(&service.name()));
    }
    let made = if checks { root.join("target/generated") } else { root.join(MADE) };
    std::fs::create_dir_all(&made).map_err(|error| format!("{MADE}: {error}"))?;
    tonic_prost_build::configure()
        .build_transport(false)
        .generate_default_stubs(true)
        .emit_rerun_if_changed(false)
        // Many hold secrets.
        .skip_debug(["."])
        .out_dir(&made)
        .compile_fds(files)
        .map_err(|error| format!("{MADE}: {error}"))?;
    let read = |folder: &Path| std::fs::read(folder.join(FILE)).map_err(|error| format!("{FILE}: {error}"));
    match checks && read(&made)? != read(&root.join(MADE))? {
        true => Err(format!(
            "{MADE}/{FILE} is not what {FOLDER} makes: cargo run -p xtask --features proto -- proto"
        )),
        false => Ok(format!("{MADE}/{FILE}: {}", if checks { "current" } else { "written" })),
    }
}
