//! The inode table.
