//! A mount that outlives the process that serves it: its descriptor, what INIT agreed upon, and the table of
//! what the kernel knows. Whoever has these three goes on with it.

mod message;
mod table;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatout_engine::Error;
use flatout_tree::{Files, SharedTable};
use serde::{Deserialize, Serialize};

pub use message::{receive, send};
pub use table::SharedMemory;

use crate::attach::attach;
use crate::device::Device;
use crate::identity::{MountIdentity, ShownDevice, local};
use crate::image::{self, DetachedRoot};
use crate::init::SessionParameters;
use crate::options::Options;
use crate::session::{self, Session, TakeOver};
use crate::timings::Observer;
use crate::tuning::DeviceNumber;

/// A mount of which the kernel has had its answer to INIT, and which nobody need serve: its users wait then.
#[derive(Debug)]
pub struct LastingMount {
    pub(crate) device: OwnedFd,
    pub(crate) about: About,
    table: Arc<SharedMemory>,
    /// Of one that serves an image, until that is mounted.
    root: Option<DetachedRoot>,
    /// Its image, until that is shown.
    mounted: Option<OwnedFd>,
    image: Option<ShownDevice>,
    /// The file that everything the kernel knows comes from, for whoever serves it.
    content: Option<Arc<File>>,
}

/// What travels beside the two descriptors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct About {
    /// Of this struct and of the table's rows.
    format: u32,
    point: Option<PathBuf>,
    device: Option<DeviceNumber>,
    /// It serves an image.
    #[serde(default)]
    is_image: bool,
    /// The device of the image where users see it, if the sender knows it.
    #[serde(default)]
    shown: Option<DeviceNumber>,
    pub knows_pids: bool,
    pub parameters: SessionParameters,
}

impl LastingMount {
    /// Of what is handed over. Programs of one format can go on with each other's mounts.
    pub const FORMAT: u32 = 1;

    /// Mounts, and answers INIT.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn new(options: &Options) -> Result<LastingMount, Error> {
        let attached = attach(options)?;
        let identity = attached.identity.clone();
        let begun = LastingMount::begin(attached.device, &identity, attached.knows_pids, options);
        let begun = begun.map(|mount| LastingMount { root: attached.root, ..mount });
        if begun.is_err()
            && let Some(point) = &identity.point
        {
            // The first error says more than an error of this could.
            let _ = crate::unmount::detach(point, &identity, true);
        }
        begun.map_err(|error| error.during("mount", options.mount_point.display()))
    }

    /// It is served by processes of other namespaces: the kernel's numbers of processes mean nothing there.
    #[must_use]
    pub fn for_other_namespaces(mut self) -> LastingMount {
        self.about.knows_pids = false;
        self
    }

    /// Of a connection that is not mounted, for tests.
    #[doc(hidden)]
    pub fn of_descriptor(device: OwnedFd, options: &Options) -> Result<LastingMount, Error> {
        LastingMount::begin(device, &MountIdentity::default(), true, options)
    }

    fn begin(
        device: OwnedFd,
        identity: &MountIdentity,
        knows_pids: bool,
        options: &Options,
    ) -> Result<LastingMount, Error> {
        let table = SharedMemory::new().map_err(|error| local("cannot share memory", error))?;
        let device = Device::new(device);
        let parameters = session::first_request(&device, options)?;
        // Whoever serves it may not be allowed to.
        session::raise_read_ahead(&parameters, options, identity.device);
        let MountIdentity { point, device: number, image } = identity.clone();
        let (format, is_image) = (LastingMount::FORMAT, image.is_some());
        let about = About { format, point, device: number, is_image, shown: None, knows_pids, parameters };
        let (device, table) = (device.into_descriptor(), Arc::new(table));
        Ok(LastingMount { device, about, table, root: None, mounted: None, image, content: None })
    }

    /// Its content comes from this file: whoever serves it gets it, too, whatever its name has by then.
    #[must_use]
    pub fn with_content(mut self, file: File) -> LastingMount {
        self.content = Some(Arc::new(file));
        self
    }

    /// Major and minor of its files, if they are known without a look.
    pub fn known_device(&self) -> Option<(u32, u32)> {
        self.image.as_ref().map_or(self.about.device, ShownDevice::known)
    }

    /// Closes the file that its content comes from: no other process serves it any more.
    pub fn forget_content(&mut self) {
        self.content = None;
    }

    /// The file that its content comes from.
    pub fn content(&self) -> Option<&Arc<File>> {
        self.content.as_ref()
    }

    /// Mounts the image that it serves, if any, nowhere yet: its device is known from then on. A process must
    /// serve the connection by now, since the kernel reads the image's beginning.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn mount_image(&mut self, options: &Options) -> Result<(), Error> {
        if let (Some(root), Some(image)) = (self.root.take(), options.image) {
            let mounted = root.mount_image(options, image, self.image.as_ref());
            let mounted = mounted.map_err(|error| error.during("mount", options.mount_point.display()))?;
            self.mounted = Some(mounted);
        }
        Ok(())
    }

    /// Has users see the image that it serves, if any.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn show(&mut self, options: &Options) -> Result<(), Error> {
        self.mount_image(options)?;
        match (self.mounted.take(), options.image) {
            (Some(mounted), Some(image)) => image::place(&mounted, options, image)
                .map_err(|error| error.during("mount", options.mount_point.display())),
            _ => Ok(()),
        }
    }

    /// What the kernel knows of the tree, for whoever serves it.
    pub fn table(&self) -> Arc<dyn SharedTable> {
        self.table.clone()
    }

    /// Where it is mounted, if that is known.
    pub fn point(&self) -> Option<&Path> {
        self.about.point.as_deref()
    }

    /// Major and minor of its files, if they are known.
    pub fn device(&self) -> Option<(u32, u32)> {
        self.identity().shown()
    }

    /// Whether it serves an image.
    pub fn is_image(&self) -> bool {
        self.about.is_image
    }

    /// Whether the kernel sends requests again that a process has read and not answered (Linux 6.9).
    pub fn resends(&self) -> bool {
        self.about.parameters.resends
    }

    /// `false` once it was unmounted everywhere, or aborted.
    pub fn is_connected(&self) -> bool {
        Device::is_connected_by(&self.device)
    }

    /// Another owner of the same mount.
    ///
    /// # Errors
    /// The system's.
    pub fn try_clone(&self) -> io::Result<LastingMount> {
        let device = self.device.try_clone()?;
        let (about, table, image) = (self.about.clone(), self.table.clone(), self.image.clone());
        Ok(LastingMount {
            device,
            about,
            table,
            root: None,
            mounted: None,
            image,
            content: self.content.clone(),
        })
    }

    /// Hands it to another process as well.
    ///
    /// # Errors
    /// The other side is gone, or the system's.
    pub fn send(&self, socket: &UnixStream) -> io::Result<()> {
        let shown = self.image.as_ref().and_then(ShownDevice::known);
        let about = serde_json::to_vec(&About { shown, ..self.about.clone() })?;
        let table = self.table.descriptor()?;
        let mut descriptors = vec![self.device.as_fd(), table.as_fd()];
        descriptors.extend(self.content.iter().map(|file| file.as_fd()));
        message::send(socket, &about, &descriptors)
    }

    /// Takes it from another process.
    ///
    /// # Errors
    /// The other side is gone, or of another format.
    pub fn receive(socket: &UnixStream) -> io::Result<LastingMount> {
        let (about, descriptors) = message::receive(socket)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let foreign = |cause: &str| io::Error::new(io::ErrorKind::InvalidData, cause.to_owned());
        let format: Format = serde_json::from_slice(&about)?;
        if format.format != LastingMount::FORMAT {
            return Err(foreign("the other program is of a version that cannot hand a mount to this one"));
        }
        let about: About = serde_json::from_slice(&about)?;
        let mut descriptors = descriptors.into_iter();
        let (Some(device), Some(table)) = (descriptors.next(), descriptors.next()) else {
            return Err(foreign("descriptors are missing"));
        };
        let content = descriptors.next().map(|file| Arc::new(File::from(file)));
        let image = about.is_image.then(|| ShownDevice::of_another(about.shown));
        let table = Arc::new(SharedMemory::of(table)?);
        Ok(LastingMount { device, about, table, root: None, mounted: None, image, content })
    }

    /// Serves these files. `takes_over`: another process has served it, and these files go on with its table;
    /// what that process has read and not answered is sent again, or fails with `EIO`.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn serve<F: Files>(
        self,
        files: Arc<F>,
        options: &Options,
        observer: Observer,
        takes_over: bool,
    ) -> Result<Session, Error> {
        let identity = self.identity();
        let LastingMount { device, about, table, .. } = self;
        let lasting = TakeOver { parameters: about.parameters, table, takes_over };
        session::serve_lasting((device, identity, about.knows_pids), files, observer, options, lasting)
    }

    pub(crate) fn identity(&self) -> MountIdentity {
        MountIdentity {
            point: self.about.point.clone(),
            device: self.about.device,
            image: self.image.clone(),
        }
    }

    /// Unmounts it, without anybody who serves it; an error if it is in use.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn unmount(&self, lazy: bool) -> Result<(), Error> {
        match &self.about.point {
            Some(point) => crate::unmount::detach(point, &self.identity(), lazy)
                .map_err(|error| error.during("umount", point.display())),
            None => Ok(()),
        }
    }

    /// Ends it with errors for its users, who would wait for ever. It stays where it is mounted: programs
    /// that found the folder below it in its place would go on there.
    pub fn abort(self) {
        if let Some(device) = self.about.device {
            let _ = crate::tuning::abort(device, || self.is_connected());
        }
    }
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}
