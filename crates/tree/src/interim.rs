//! What the engine's reader will bring: its words, until it is there.

use flatout_wire::location::Location;

/// A version of an object.
#[derive(Clone, Debug)]
pub struct Object {
    pub location: Location,
    pub size: u64,
    pub etag: Option<String>,
}

/// Bytes that were read.
pub struct Pieces(Vec<u8>);

impl Pieces {
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.0.as_slice())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<Vec<u8>> for Pieces {
    fn from(bytes: Vec<u8>) -> Pieces {
        Pieces(bytes)
    }
}

/// A waiting read.
pub struct Reading;

impl Reading {
    pub fn cancel(self) -> bool {
        false
    }
}

#[derive(Clone)]
pub struct Reader(pub Object);

impl Reader {
    pub fn read(
        &self,
        _at: u64,
        _bytes: usize,
        done: impl FnOnce(Result<Pieces, flatout_engine::Error>) + Send + 'static,
    ) -> Reading {
        done(Ok(Pieces(Vec::new())));
        Reading
    }

    pub fn set_next(&self, _next: impl FnOnce() -> Option<Object> + Send + 'static) {}
}

pub struct Weight;

impl Weight {
    pub fn set(&mut self, _bytes: u64) {}

    pub fn is_over(&self) -> bool {
        false
    }
}
