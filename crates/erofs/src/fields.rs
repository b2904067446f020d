//! Little-endian fields of structures on disk, and CRC32C.

use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// The CRC32C of bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    // Of 32 bits, in a wider type.
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

/// Writes a field. Offsets are those of structures of fixed size.
pub fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// The number of two bytes at `at`; zero beyond the end.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(bytes, at))
}

/// The number of four bytes at `at`; zero beyond the end.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(bytes, at))
}

/// The number of eight bytes at `at`; zero beyond the end.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(field(bytes, at))
}

/// The `N` bytes at `at`; zeros beyond the end.
pub fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}
