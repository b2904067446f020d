//! Listings: a page of ListObjectsV2 and the answer of ListBuckets.

use crate::percent;
use crate::time::parse_iso;
use crate::xml::walk;

/// One page of a bucket's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub objects: Vec<Listed>,
    /// Common prefixes, their delimiter at the end.
    pub prefixes: Vec<String>,
    /// The token of the next page; `None` on the last.
    pub next: Option<String>,
}

/// An object as a listing shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    /// In bytes.
    pub size: u64,
    /// As in the header, with its quotes.
    pub etag: Option<String>,
    /// Unix seconds; 0 where the origin did not say.
    pub last_modified: u64,
    pub storage_class: Option<String>,
}

/// Why an XML answer cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum XmlError {
    #[error("malformed XML: {0}")]
    Malformed(String),
    #[error("expected <{expected}>, the origin sent <{found}>")]
    Unexpected { expected: &'static str, found: String },
    #[error("<{element}> holds `{text}`")]
    BadValue { element: &'static str, text: String },
    #[error("the key `{0}` is not UTF-8")]
    KeyNotUtf8(String),
    #[error("the listing says that it is cut off, but not how it goes on")]
    NoToken,
}

/// Parses an answer to ListObjectsV2. Keys and prefixes are decoded where the answer says that they are
/// URL-encoded.
///
/// # Errors
/// A document that is malformed, cut off or another, a size or date that is none, and a listing that says it
/// goes on but not where: anything else would leave objects out in silence.
pub fn parse_page(xml: &[u8]) -> Result<Page, XmlError> {
    let mut page = Page::default();
    let mut object = Listed::default();
    let (mut is_encoded, mut is_truncated, mut root) = (false, false, String::new());
    walk(xml, |path, text| {
        match path.strip_prefix("ListBucketResult/").unwrap_or("") {
            "Contents/Key" => object.key = text.into(),
            "Contents/Size" => object.size = value("Size", text, crate::range::number(text.trim()))?,
            "Contents/ETag" => object.etag = some(text),
            "Contents/LastModified" => {
                object.last_modified = value("LastModified", text, parse_iso(text.trim()))?
            }
            "Contents/StorageClass" => object.storage_class = some(text),
            "Contents" => page.objects.push(std::mem::take(&mut object)),
            "CommonPrefixes/Prefix" => page.prefixes.push(text.into()),
            "EncodingType" => is_encoded = text.trim() == "url",
            "IsTruncated" => is_truncated = text.trim() == "true",
            "NextContinuationToken" => page.next = some(text),
            _ => {}
        }
        if !path.contains('/') {
            root = path.into();
        }
        Ok(())
    })?;
    expect_root(&root, "ListBucketResult")?;
    if !is_truncated {
        page.next = None;
    } else if page.next.is_none() {
        return Err(XmlError::NoToken);
    }
    if is_encoded {
        decode_keys(&mut page)?;
    }
    Ok(page)
}

/// Parses an answer to ListBuckets: names and times of creation in Unix seconds (0 where the origin did not
/// say).
///
/// # Errors
/// A document that is malformed, cut off or another, and a date that is none.
pub fn parse_buckets(xml: &[u8]) -> Result<Vec<(String, u64)>, XmlError> {
    let mut buckets = Vec::new();
    let (mut name, mut created, mut root) = (String::new(), 0, String::new());
    walk(xml, |path, text| {
        match path.strip_prefix("ListAllMyBucketsResult/Buckets/").unwrap_or("") {
            "Bucket/Name" => name = text.into(),
            "Bucket/CreationDate" => created = value("CreationDate", text, parse_iso(text.trim()))?,
            "Bucket" => buckets.push((std::mem::take(&mut name), std::mem::take(&mut created))),
            _ => {}
        }
        if !path.contains('/') {
            root = path.into();
        }
        Ok(())
    })?;
    expect_root(&root, "ListAllMyBucketsResult")?;
    Ok(buckets)
}

fn expect_root(found: &str, expected: &'static str) -> Result<(), XmlError> {
    if found == expected { Ok(()) } else { Err(XmlError::Unexpected { expected, found: found.into() }) }
}

fn value<T>(element: &'static str, text: &str, parsed: Option<T>) -> Result<T, XmlError> {
    parsed.ok_or_else(|| XmlError::BadValue { element, text: text.into() })
}

fn some(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.into())
}

fn decode_keys(page: &mut Page) -> Result<(), XmlError> {
    let keys = page.objects.iter_mut().map(|object| &mut object.key);
    for key in keys.chain(&mut page.prefixes) {
        *key = decode_key(key)?;
    }
    Ok(())
}

/// S3 encodes as forms do: a space is a '+', and a '+' is `%2B`.
fn decode_key(encoded: &str) -> Result<String, XmlError> {
    let spaced = encoded.replace('+', " ");
    let decoded = percent::decode(&spaced).into_owned();
    String::from_utf8(decoded).map_err(|_| XmlError::KeyNotUtf8(encoded.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
  <Name>bucket</Name><Prefix>not/a/common/one</Prefix><KeyCount>3</KeyCount><MaxKeys>1000</MaxKeys>
  <Delimiter>%2F</Delimiter><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
  <NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken>
  <Contents>
    <Key>a+b%2Bc/%C3%BC</Key><LastModified>1994-11-06T08:49:37.000Z</LastModified>
    <ETag>&quot;70ee1738b6b21e2c8a43f3a5ab0eee71&quot;</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm>
    <Size>4294967296</Size><StorageClass>STANDARD</StorageClass>
    <Owner><ID>x</ID><DisplayName>y</DisplayName></Owner>
  </Contents>
  <Contents><Key>empty</Key><Size>0</Size></Contents>
  <CommonPrefixes><Prefix>folder+1/</Prefix></CommonPrefixes>
</ListBucketResult>"#;

    #[test]
    fn a_page() {
        let page = parse_page(PAGE.as_bytes()).unwrap();
        let first = Listed {
            key: "a b+c/ü".into(),
            size: 4_294_967_296,
            etag: Some("\"70ee1738b6b21e2c8a43f3a5ab0eee71\"".into()),
            last_modified: 784_111_777,
            storage_class: Some("STANDARD".into()),
        };
        // Nothing of the object before leaks into one that states less.
        let second = Listed { key: "empty".into(), ..Listed::default() };
        assert_eq!(page.objects, [first, second]);
        assert_eq!(page.prefixes, ["folder 1/"]);
        assert_eq!(page.next.as_deref(), Some("1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM="));
    }

    #[test]
    fn keys_that_are_not_encoded_stay() {
        let page = parse_page(PAGE.replace("<EncodingType>url</EncodingType>", "").as_bytes()).unwrap();
        assert_eq!(
            (page.objects[0].key.as_str(), page.prefixes[0].as_str()),
            ("a+b%2Bc/%C3%BC", "folder+1/")
        );
        let spaces = "<ListBucketResult><Contents><Key> a </Key></Contents></ListBucketResult>";
        assert_eq!(parse_page(spaces.as_bytes()).unwrap().objects[0].key, " a ");
    }

    #[test]
    fn the_last_page() {
        let page = parse_page(PAGE.replace("<IsTruncated>true", "<IsTruncated>false").as_bytes()).unwrap();
        assert_eq!(page.next, None);
        assert_eq!(parse_page(b"<ListBucketResult/>"), Ok(Page::default()));
    }

    #[test]
    fn pages_that_would_hide_objects() {
        let rows = [
            (PAGE.replace("<Size>0", "<Size>-1"), "<Size> holds `-1`"),
            (PAGE.replace("1994-11-06T", "yesterday"), "<LastModified> holds"),
            (PAGE.replace("NextContinuationToken", "Next"), "not how it goes on"),
            (PAGE.replace("%C3%BC", "%FF"), "not UTF-8"),
            (
                PAGE.replace("ListBucketResult", "Error"),
                "expected <ListBucketResult>, the origin sent <Error>",
            ),
            (PAGE[..PAGE.len() - 20].to_string(), "malformed XML"),
            (PAGE[..PAGE.len() / 2].to_string(), "malformed XML"),
            (String::new(), "expected <ListBucketResult>"),
        ];
        for (xml, expected) in rows {
            let error = parse_page(xml.as_bytes()).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn buckets() {
        let xml = "<ListAllMyBucketsResult><Owner><ID>x</ID></Owner><Buckets>\
            <Bucket><CreationDate>1994-11-06T08:49:37.000Z</CreationDate><Name>one</Name></Bucket>\
            <Bucket><Name>two</Name></Bucket></Buckets></ListAllMyBucketsResult>";
        assert_eq!(parse_buckets(xml.as_bytes()).unwrap(), [("one".into(), 784_111_777), ("two".into(), 0)]);
        assert_eq!(parse_buckets(b"<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>"), Ok(vec![]));
        assert!(parse_buckets(b"<ListBucketResult/>").is_err());
    }
}
