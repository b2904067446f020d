//! One object as a listing, an inventory or a list of keys names it.

/// An object of a bucket: what an index keeps of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The key, decoded.
    pub key: String,
    /// Bytes of the object.
    pub size: u64,
    /// When it was last changed, in Unix seconds; 0 where that is not known.
    pub modified_s: u64,
    /// The ETag as a header has it, with its quotes.
    pub etag: Option<String>,
}
