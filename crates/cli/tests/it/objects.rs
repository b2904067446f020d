//! Origins of our own kind, embedded, with objects whose bytes are known.

use std::fs;
use std::path::Path;

use flatout_server::{Options, Origin, Store};

pub const ACCESS_KEY: &str = "AKIDEXAMPLE";
pub const SECRET_KEY: &str = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY";

/// Bytes that repeat only after a while.
pub fn bytes(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// An origin over a folder of buckets, letting anything in.
pub struct Buckets {
    pub folder: tempfile::TempDir,
    origin: Origin,
}

impl Buckets {
    /// With these objects, named `bucket/key`.
    pub fn new(objects: &[(&str, &[u8])]) -> Buckets {
        Buckets::with_auth(objects, None)
    }

    /// For those who have the keys only.
    pub fn locked(objects: &[(&str, &[u8])]) -> Buckets {
        Buckets::with_auth(objects, Some((ACCESS_KEY.to_owned(), SECRET_KEY.to_owned())))
    }

    fn with_auth(objects: &[(&str, &[u8])], auth: Option<(String, String)>) -> Buckets {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in objects {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let origin = start(Store::Root(folder.path().to_path_buf()), auth);
        Buckets { folder, origin }
    }

    pub fn url(&self) -> String {
        self.origin.url()
    }

    pub fn root(&self) -> &Path {
        self.folder.path()
    }
}

/// An origin with one made-up object, `demo/object`.
pub fn synthetic(length: u64) -> Origin {
    start(Store::Synthetic(vec![("demo".into(), "object".into(), length)], vec![]), None)
}

pub fn start(store: Store, auth: Option<(String, String)>) -> Origin {
    Origin::start(Options { auth, ..Options::new(store) }).expect("an origin on a free port")
}
