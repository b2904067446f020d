//! From a volume to a mount: the same for the plugin, which mounts, and for the engine, which serves.

use std::path::{Path, PathBuf};

use flatout_ambient::{Ambient, Environment};
use flatout_engine::{Dialect, Error};
use flatout_mounting::{IndexRoot, MountOptions, MountPlan, MountSource};
use flatout_settings::{Settings, knob};
use flatout_wire::location::Location;
use tonic::Code;

use crate::link::{Assignment, Failure};

/// The settings of a volume in these surroundings.
///
/// # Errors
/// Settings that make no sense.
pub fn gather(assignment: &Assignment, surroundings: &Environment) -> Result<Ambient, Failure> {
    let mut flags: Vec<(&str, String)> = Vec::new();
    for (name, value) in &assignment.volume.knobs {
        // One that an older program knew, and this one does not, is left out.
        if let Some(knob) = knob(name) {
            flags.push((knob.name, value.clone()));
        }
    }
    flags.push(("memory", assignment.memory_bytes.to_string()));
    flatout_ambient::gather_from(&flags, surroundings)
        .map_err(|error| Failure::new(Code::InvalidArgument, error.to_string()))
}

/// The mount of a volume at that place. One with an index is served from that, by an image or as a tree.
///
/// # Errors
/// Its source is no bucket.
pub fn of(
    assignment: &Assignment,
    settings: Settings,
    mount_point: &Path,
    state_folder: Option<PathBuf>,
    index: Option<(PathBuf, bool)>,
) -> Result<MountPlan, Failure> {
    let source = &assignment.volume.source;
    let location = Location::parse(source)
        .map_err(|error| Failure::new(Code::InvalidArgument, format!("{source}: {error}")))?;
    let source = match index {
        // Small files are read whole.
        Some((path, is_image)) => {
            let root = IndexRoot { path, is_image, is_direct: true };
            MountSource::index(root, Dialect::of(&location))
        }
        None => MountSource::under(&location).map_err(Failure::from)?,
    };
    let mut options = MountOptions::default();
    options.system.clone_from(&assignment.volume.system);
    // The knob says it.
    options.system.retain(|option| option != "ro");
    options.no_permissions = assignment.volume.no_permissions;
    let mut plan = MountPlan::of_standing(source, mount_point, settings, &options);
    plan.state_folder = state_folder;
    Ok(plan)
}

/// Mounts it there, so that the mount outlives whoever serves it.
///
/// # Errors
/// The kernel's refusal.
pub fn mount(plan: &MountPlan) -> Result<flatout_mount::LastingMount, Error> {
    flatout_mounting::lasting_mount(plan).map(flatout_mount::LastingMount::for_other_namespaces)
}
