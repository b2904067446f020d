//! Whether this kernel shows an image as it should: tried on a small one, since what distributions ship lags
//! behind what was mended.

use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use flatout_erofs::{BLOCK, DATA_BLOCK, Index, Options, Writer};
use flatout_mount::IMAGE_NAME;
use flatout_tree::{Cancel, FsError, Slices};
use flatout_volume::{Image, ImageContent};
use rustix::fs::{Mode, OFlags};

/// The first 6.12 that is tried. Until a mend of November 2024 the kernel reads a null pointer with EROFS
/// over FUSE, which is nothing to find out by trying.
const MENDED: (u32, u32, u32) = (6, 12, 7);

/// What uname(2) tells, too.
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// The bytes of each file, and what they are.
const FILE_BYTES: u64 = 5000;
const CONTENT: u8 = b'x';
/// How long the look may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// The file that comes whole, and the one that is cut short.
const WHOLE: &str = "a";
const SHORT: &str = "b";

/// Whether images can be mounted here. Tried once.
///
/// # Errors
/// Why not, for people.
pub fn image_support() -> Result<(), String> {
    static SUPPORT: OnceLock<Result<(), String>> = OnceLock::new();
    SUPPORT.get_or_init(|| within_patience(look)).clone()
}

/// A kernel that never answers shows no images.
fn within_patience(look: fn() -> Result<(), String>) -> Result<(), String> {
    let (sender, receiver) = mpsc::channel();
    // Nobody hears it any more after that time.
    let told = move || drop(sender.send(look()));
    let thread = std::thread::Builder::new().name("image".into()).spawn(told);
    thread.map_err(|error| error.to_string())?;
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| Err("the kernel does not answer".to_owned()))
}

fn look() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("only root may mount an image".to_owned());
    }
    // An unknown release is tried.
    is_mended(fs::read_to_string(RELEASE).unwrap_or_default().trim_end())?;
    let (session, root) =
        flatout_mount::mount_nowhere(Arc::new(Image::new(Arc::new(TwoFiles::new()), IMAGE_NAME)))
            .map_err(|error| error.to_string())?;
    let whole = read(&root, WHOLE);
    let short = read(&root, SHORT);
    drop(root);
    drop(session);
    match (whole, short) {
        (Ok(bytes), _) if bytes != vec![CONTENT; FILE_BYTES as usize] => {
            Err("the kernel reads other bytes than it was given".to_owned())
        }
        (Err(error), _) => Err(format!("the kernel cannot read what it was given: {error}")),
        (Ok(_), Ok(_)) => Err("the kernel takes what is missing for zeros: a newer one is needed".to_owned()),
        (Ok(_), Err(_)) => Ok(()),
    }
}

/// Of a kernel's release, as in `6.12.48-amd64`. What cannot be understood is tried.
fn is_mended(release: &str) -> Result<(), String> {
    let mut numbers =
        release.split(|sign: char| !sign.is_ascii_digit()).map_while(|number| number.parse().ok());
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(major), Some(minor), patch) if (major, minor, patch.unwrap_or(0)) < MENDED => {
            let (major, minor, patch) = MENDED;
            Err(format!("Linux {release} is older than {major}.{minor}.{patch}"))
        }
        _ => Ok(()),
    }
}

fn read(root: &OwnedFd, name: &str) -> std::io::Result<Vec<u8>> {
    let file = rustix::fs::openat(root, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// An image of two files.
struct TwoFiles(Index<Vec<u8>>);

impl TwoFiles {
    fn new() -> TwoFiles {
        let memory = || Cursor::new(Vec::new());
        let mut writer = Writer::new(memory(), memory(), Options::default()).expect("memory takes it");
        for name in [WHOLE, SHORT] {
            writer.add(name.as_bytes(), FILE_BYTES, 0, None).expect("memory takes it");
        }
        let (index, _) = writer.finish().expect("memory takes it");
        TwoFiles(Index::open(index.into_inner()).expect("it was just written"))
    }
}

impl ImageContent for TwoFiles {
    fn image_bytes(&self) -> u64 {
        self.0.image_bytes()
    }

    fn metadata_bytes(&self) -> u64 {
        self.0.metadata_bytes()
    }

    fn metadata_block(&self, block: u64) -> Result<Vec<u8>, FsError> {
        self.0.block(block).map_err(|_| FsError { errno: libc::EIO, cause: None })
    }

    fn read_data(
        self: &Arc<Self>,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        let of_short = (u64::from(DATA_BLOCK) + FILE_BYTES.div_ceil(BLOCK)) * BLOCK;
        let content = match at < of_short {
            true => vec![CONTENT; bytes],
            // A page of two: what the kernel must not take for a file with a hole.
            false => vec![CONTENT; (of_short + BLOCK).saturating_sub(at).min(bytes as u64) as usize],
        };
        done(Ok(&mut [&content[..]].into_iter()));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::is_mended;

    #[test]
    fn kernels_before_the_mend_are_not_tried() {
        for release in ["5.10.0-30-amd64", "6.11.11", "6.12.0-55.9.1.el10_0.x86_64", "6.12", "6.12.6"] {
            assert_eq!(is_mended(release), Err(format!("Linux {release} is older than 6.12.7")));
        }
        for release in ["6.12.7", "6.12.48+deb13-amd64", "6.13.0-rc1", "7.0.3", "10.1", "unknown", ""] {
            assert_eq!(is_mended(release), Ok(()), "{release}");
        }
    }
}
