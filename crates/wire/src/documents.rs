//! Documents that requests carry: the parts of an upload, keys to delete, the region of a new bucket.
//!
//! Elements stand in no namespace: S3, the servers after it and OSS all read them so, and one form serves
//! both dialects.

use base64_simd::STANDARD as BASE64;
use md5::{Digest, Md5};

use crate::checksum::Algorithm;
use crate::head::quoted;

/// The region of a bucket that is created without a document.
const FIRST_REGION: &str = "us-east-1";

/// A part of an upload as the completion names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DonePart {
    /// 1 to 10,000.
    pub number: u32,
    /// As the answer to the part stated it; quotes that are missing are added.
    pub etag: String,
    /// The part's own checksum, which S3 compares with the one that it keeps. OSS has no element for it:
    /// [`Algorithm::Crc64Xz`] is left out.
    pub checksum: Option<(Algorithm, u64)>,
}

/// The body of CompleteMultipartUpload, for S3 and OSS. Parts are written in the order of their numbers,
/// which both insist on (`InvalidPartOrder`).
pub fn complete_body(parts: &[DonePart]) -> Vec<u8> {
    let mut sorted: Vec<&DonePart> = parts.iter().collect();
    sorted.sort_by_key(|part| part.number);
    let mut xml = String::from("<CompleteMultipartUpload>");
    for part in sorted {
        xml.push_str("<Part>");
        put_leaf(&mut xml, "PartNumber", &part.number.to_string());
        put_leaf(&mut xml, "ETag", &quoted(&part.etag));
        if let Some((algorithm, value)) = part.checksum
            && let Some(name) = algorithm.s3_name()
        {
            put_leaf(&mut xml, &format!("Checksum{name}"), &algorithm.encode(value));
        }
        xml.push_str("</Part>");
    }
    xml.push_str("</CompleteMultipartUpload>");
    xml.into_bytes()
}

/// The ETag of an object made of parts with these ETags: the MD5 of their MD5s, and their number. `None`
/// where one is no MD5, as of parts that were encrypted by a key service.
pub fn etag_of_parts<'a>(etags: impl Iterator<Item = &'a str>) -> Option<String> {
    let (mut hasher, mut count) = (Md5::new(), 0);
    for etag in etags {
        let mut sum = [0; 16];
        let hex = etag.trim_matches('"').as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
        if hex.len() != 2 * sum.len() {
            return None;
        }
        for (byte, pair) in sum.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        hasher.update(sum);
        count += 1;
    }
    let hex: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    (count > 0).then(|| format!("\"{hex}-{count}\""))
}

/// The body of DeleteObjects (OSS: DeleteMultipleObjects), for at most 1,000 keys. A `quiet` answer names
/// only keys that could not be deleted. Both dialects want [`content_md5`] of it in `content-md5`.
///
/// A key for which [`is_xml_text`] is false is written with references (`&#1;`) that XML 1.0 does not allow.
/// OSS's own SDKs send such references. A strict reader, S3 among them, refuses the whole document: delete
/// such a key with a request of its own.
pub fn delete_body(keys: &[&str], quiet: bool) -> Vec<u8> {
    let mut xml = String::from("<Delete>");
    put_leaf(&mut xml, "Quiet", if quiet { "true" } else { "false" });
    for key in keys {
        xml.push_str("<Object>");
        put_leaf(&mut xml, "Key", key);
        xml.push_str("</Object>");
    }
    xml.push_str("</Delete>");
    xml.into_bytes()
}

/// The body of S3's CreateBucket. It is empty for us-east-1, which S3 does not take for a
/// `LocationConstraint`. OSS needs none: a bucket lies in the region of the endpoint.
pub fn create_bucket_body(region: &str) -> Vec<u8> {
    if region == FIRST_REGION {
        return Vec::new();
    }
    let mut xml = String::from("<CreateBucketConfiguration>");
    put_leaf(&mut xml, "LocationConstraint", region);
    xml.push_str("</CreateBucketConfiguration>");
    xml.into_bytes()
}

/// The value of `content-md5` (RFC 1864): base64 of the MD5 of `body`.
pub fn content_md5(body: &[u8]) -> String {
    BASE64.encode_to_string(Md5::digest(body))
}

/// Whether an XML 1.0 document can carry the text: all its characters are `Char`
/// (<https://www.w3.org/TR/xml/#charsets>), which most control characters are not.
pub fn is_xml_text(text: &str) -> bool {
    text.chars().all(is_xml_character)
}

fn is_xml_character(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

fn put_leaf(xml: &mut String, name: &str, text: &str) {
    xml.push('<');
    xml.push_str(name);
    xml.push('>');
    put_escaped(xml, text);
    xml.push_str("</");
    xml.push_str(name);
    xml.push('>');
}

/// Markup and everything that a reader may change is written as a reference: line breaks, which readers
/// join, and blanks at both ends, which some cut. A key that comes out shorter would be another object's.
fn put_escaped(xml: &mut String, text: &str) {
    let last = text.len().saturating_sub(1);
    for (at, character) in text.char_indices() {
        match character {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            ' ' if at != 0 && at != last => xml.push(' '),
            _ if character.is_whitespace() || character.is_control() || !is_xml_character(character) => {
                xml.push_str(&format!("&#{};", u32::from(character)));
            }
            _ => xml.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::xml::walk;

    /// What a document holds, read by the reader of answers.
    fn leaves(document: &[u8]) -> Vec<(String, String)> {
        let mut leaves = Vec::new();
        let walked = walk(document, |path, text| {
            leaves.push((path.to_owned(), text.to_owned()));
            Ok(())
        });
        walked.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(document)));
        leaves
    }

    fn texts(document: &[u8], path: &str) -> Vec<String> {
        leaves(document).into_iter().filter(|leaf| leaf.0 == path).map(|leaf| leaf.1).collect()
    }

    fn check(document: Vec<u8>, expected: &str) {
        assert_eq!(String::from_utf8(document).unwrap(), expected);
    }

    fn part(number: u32, etag: &str, checksum: Option<(Algorithm, u64)>) -> DonePart {
        DonePart { number, etag: etag.into(), checksum }
    }

    #[test]
    fn completions() {
        let first = "<Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag>";
        let crc = Algorithm::Crc64Nvme.of(b"123456789");
        let rows = [
            (None, String::new()),
            (Some((Algorithm::Crc64Nvme, crc)), "<ChecksumCRC64NVME>rosUhgp5mIg=</ChecksumCRC64NVME>".into()),
            (Some((Algorithm::Crc32c, 0xe306_9283)), "<ChecksumCRC32C>4waSgw==</ChecksumCRC32C>".into()),
            (Some((Algorithm::Crc32, 0)), "<ChecksumCRC32>AAAAAA==</ChecksumCRC32>".into()),
            (Some((Algorithm::Crc64Xz, 1)), String::new()),
        ];
        for (checksum, element) in rows {
            // Parts end in any order.
            let parts = [part(10_000, "\"b-2\"", None), part(1, "a", checksum)];
            let expected = format!(
                "<CompleteMultipartUpload>{first}{element}</Part><Part><PartNumber>10000</PartNumber>\
                 <ETag>&quot;b-2&quot;</ETag></Part></CompleteMultipartUpload>"
            );
            check(complete_body(&parts), &expected);
        }
        check(complete_body(&[]), "<CompleteMultipartUpload></CompleteMultipartUpload>");
    }

    #[test]
    fn deletions() {
        let rows = [
            ("a", "a"),
            ("a b+c%2F", "a b+c%2F"),
            (" a  b ", "&#32;a  b&#32;"),
            (" ", "&#32;"),
            ("//ü?&<>\"'", "//ü?&amp;&lt;&gt;&quot;'"),
            ("a\r\n\tb", "a&#13;&#10;&#9;b"),
            ("\u{1}\u{85}\u{2028}\u{ffff}", "&#1;&#133;&#8232;&#65535;"),
            ("]]>", "]]&gt;"),
        ];
        for (key, written) in rows {
            let expected =
                format!("<Delete><Quiet>true</Quiet><Object><Key>{written}</Key></Object></Delete>");
            check(delete_body(&[key], true), &expected);
        }
        let two =
            "<Delete><Quiet>false</Quiet><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>";
        check(delete_body(&["a", "b"], false), two);
    }

    #[test]
    fn buckets() {
        let europe = "<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint>\
            </CreateBucketConfiguration>";
        check(create_bucket_body("eu-west-1"), europe);
        check(create_bucket_body("us-east-1"), "");
    }

    /// RFC 1321 §A.5 has the first two digests; OSS's PutObject page the third (reference/oss.md §6.1).
    #[test]
    fn digests() {
        let rows = [
            ("", "1B2M2Y8AsgTpgAmY7PhCfg=="),
            ("message digest", "+WtpfXy3k41SWi8xqvFh0A=="),
            ("0123456789", "eB5eJF1ptWaXm4bijSPyxw=="),
        ];
        for (body, expected) in rows {
            assert_eq!(content_md5(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn characters_of_xml() {
        for text in ["", "a\t\n\r ~\u{7f}\u{85}", "\u{d7ff}\u{e000}\u{fffd}\u{10000}\u{10ffff}"] {
            assert!(is_xml_text(text), "{text:?}");
        }
        for text in ["\0", "a\u{1}", "\u{1f}", "\u{fffe}b", "\u{ffff}"] {
            assert!(!is_xml_text(text), "{text:?}");
        }
    }

    /// Keys with anything in them, markup and blanks more often than chance has it.
    fn keys() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec(
            prop_oneof!["\\PC{0,20}", "[ &<>\"'\\]\r\n\t;#x0-9]{0,12}", any::<String>()],
            0..6,
        )
    }

    proptest! {
        #[test]
        fn keys_are_read_as_written(keys in keys(), quiet: bool) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).filter(|key| is_xml_text(key)).collect();
            let document = delete_body(&keys, quiet);
            prop_assert_eq!(texts(&document, "Delete/Object/Key"), keys);
            prop_assert_eq!(texts(&document, "Delete/Quiet"), [quiet.to_string()]);
        }

        #[test]
        fn parts_are_read_as_written(
            numbers in prop::collection::btree_set(1u32..=10_000, 0..20),
            etag in "[!#-~]{1,40}",
            crc: u64,
        ) {
            let parts: Vec<DonePart> = numbers
                .iter()
                .rev()
                .map(|number| part(*number, &etag, Some((Algorithm::Crc64Nvme, crc))))
                .collect();
            let document = complete_body(&parts);
            let of = |name: &str| texts(&document, &format!("CompleteMultipartUpload/Part/{name}"));
            let read: Vec<u32> = of("PartNumber").iter().map(|text| text.parse().unwrap()).collect();
            prop_assert_eq!(read, numbers.iter().copied().collect::<Vec<u32>>());
            prop_assert!(of("ETag").iter().all(|read| *read == quoted(&etag)));
            let sums = of("ChecksumCRC64NVME");
            prop_assert!(sums.iter().all(|text| Algorithm::Crc64Nvme.decode(text) == Some(crc)));
            prop_assert_eq!(sums.len(), numbers.len());
        }
    }
}
