//! An image that is mounted nowhere: for a look at what the kernel makes of it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use flatout_engine::Error;
use flatout_tree::Files;

use crate::attach::attach_image;
use crate::options::{ImageOptions, Options};
use crate::session::{Session, UnservedMount};
use crate::timings::Observer;

/// Serves an image, and mounts it nowhere: its root, which is there as long as the session and the descriptor
/// are.
///
/// # Errors
/// The system's refusal; `Unsupported` where the kernel cannot.
pub fn mount_nowhere<F: Files>(files: Arc<F>) -> Result<(Session, OwnedFd), Error> {
    let image = ImageOptions { direct: true, replaces: None };
    let (threads, flags) = (2, vec!["noexec".to_owned()]);
    let options = Options { threads, options: flags, image: Some(image), ..Options::new("probe", "") };
    let attached = attach_image(&options, Path::new(""))?;
    let (unserved, root) = UnservedMount::of_image(attached, options.clone());
    let session = unserved.serve(files, Observer::default())?;
    let mounted = root.mount_image(&options, image, None)?;
    Ok((session, mounted))
}
