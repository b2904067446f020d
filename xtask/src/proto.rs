//! The Rust of CSI's messages and services, made of crates/csi/proto/csi.proto. No protoc is needed.

use std::path::Path;

const FOLDER: &str = "crates/csi/proto";
const MADE: &str = "crates/csi/src/generated";
/// Services that no part of the driver has.
const LEFT_OUT: [&str; 2] = ["GroupController", "SnapshotMetadata"];

pub fn make(root: &Path) -> Result<String, String> {
    let wrong = |error: protox::Error| error.to_string();
    let mut compiler = protox::Compiler::new([root.join(FOLDER)]).map_err(wrong)?;
    compiler.include_imports(true).open_file("csi.proto").map_err(wrong)?;
    let mut files = compiler.file_descriptor_set();
    for file in &mut files.file {
        file.service.retain(|service| !LEFT_OUT.contains(&service.name()));
    }
    let made = root.join(MADE);
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
    Ok(format!("{MADE}/csi.v1.rs: written"))
}
