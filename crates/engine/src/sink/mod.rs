//! Where the bytes of a transfer land, and whether they are those that the origin states.

pub(crate) mod check;
pub(crate) mod end;
pub(crate) mod landing;
pub(crate) mod made;
pub(crate) mod stream;
pub(crate) mod verify;
