//! The framing `aws-chunked` of a body whose checksum follows it, so that one pass over its bytes is enough.
//! Nothing of it is signed: the checksum covers the payload.
//!
//! ```text
//!   100000 CRLF  payload of 0x100000 bytes  CRLF  …  0 CRLF  x-amz-checksum-crc64nvme:VALUE CRLF  CRLF
//! ```
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming-trailers.html>

use crate::checksum::Algorithm;
use crate::request::Request;

/// The payload of a chunk, as boto3 sends it; the last one may be shorter. S3 wants 8 KiB or more in all
/// chunks but the last, MinIO takes at most 16 MiB.
pub const CHUNK_BYTES: u64 = 1 << 20;

const PAYLOAD_HASH: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// The line before a chunk of `bytes`.
pub fn before_chunk(is_first: bool, bytes: u64) -> String {
    format!("{}{bytes:x}\r\n", if is_first { "" } else { "\r\n" })
}

/// The lines after the last chunk, the trailer among them.
pub fn after_chunks(algorithm: Algorithm, value: u64) -> String {
    let name = algorithm.header().unwrap_or_default();
    format!("{}{name}:{}\r\n\r\n", before_chunk(false, 0), algorithm.encode(value))
}

/// The length of a framed body with a payload of `bytes`, at least one.
pub fn framed_bytes(bytes: u64, algorithm: Algorithm) -> u64 {
    let (whole, rest) = (bytes / CHUNK_BYTES, bytes % CHUNK_BYTES);
    let line = |is_first, bytes| before_chunk(is_first, bytes).len() as u64;
    let chunks = whole * line(false, CHUNK_BYTES) + if rest > 0 { line(false, rest) } else { 0 };
    // The first line has no line end before it.
    bytes + chunks + after_chunks(algorithm, 0).len() as u64 - 2
}

/// Sets the headers of a request whose body is framed: a payload of `bytes`, and a checksum in its trailer.
pub fn announce(request: &mut Request, bytes: u64, algorithm: Algorithm) {
    request.set("content-encoding", "aws-chunked");
    request.set("x-amz-content-sha256", PAYLOAD_HASH);
    request.set("x-amz-decoded-content-length", bytes.to_string());
    request.set("x-amz-trailer", algorithm.header().unwrap_or_default());
    request.set("content-length", framed_bytes(bytes, algorithm).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(payload: &[u8], algorithm: Algorithm) -> Vec<u8> {
        let mut body = Vec::new();
        for (at, chunk) in payload.chunks(CHUNK_BYTES as usize).enumerate() {
            body.extend(before_chunk(at == 0, chunk.len() as u64).bytes());
            body.extend(chunk);
        }
        body.extend(after_chunks(algorithm, algorithm.of(payload)).bytes());
        body
    }

    #[test]
    fn a_framed_body_is_as_long_as_its_head_says() {
        let chunk = CHUNK_BYTES as usize;
        for bytes in [1, 9, 15, 16, 65_537, chunk - 1, chunk, chunk + 1, 3 * chunk, 3 * chunk + 17] {
            for algorithm in [Algorithm::Crc64Nvme, Algorithm::Crc32c] {
                let body = framed(&vec![7; bytes], algorithm);
                assert_eq!(framed_bytes(bytes as u64, algorithm), body.len() as u64, "{bytes} {algorithm:?}");
            }
        }
    }

    /// The value is that of the CRC catalogue for "123456789", in base64.
    #[test]
    fn a_framed_body() {
        let body = framed(b"123456789", Algorithm::Crc64Nvme);
        let expected = "9\r\n123456789\r\n0\r\nx-amz-checksum-crc64nvme:rosUhgp5mIg=\r\n\r\n";
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }
}
