//! Listings: a page of ListObjectsV2 and the answer of ListBuckets.

use crate::head::quoted;
use crate::percent;
use crate::time::parse_iso;
use crate::xml::{excerpt, walk};

/// Where a page of a bucket's objects begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PageStart {
    /// With the first key.
    #[default]
    First,
    /// With the first key behind this one, which need not exist.
    After(String),
    /// Where the page with this token ended.
    Token(String),
}

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

/// One page of an account's buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// Names, and times of creation in Unix seconds (0 where the origin did not say).
    pub buckets: Vec<(String, u64)>,
    /// What OSS's next page begins behind; `None` on the last. S3 answers in one page where it is not asked
    /// for several.
    pub next: Option<String>,
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
    #[error("the origin's answer has no <{element}>")]
    Missing { element: &'static str },
}

/// Parses an answer to ListObjectsV2. Keys and prefixes are decoded where the answer says that they are
/// URL-encoded.
///
/// # Errors
/// A document that is malformed, cut off or another, a size or date that is none, and a listing that says it
/// goes on but not where: anything else would leave objects out in silence.
pub fn parse_page(xml: &[u8]) -> Result<Page, XmlError> {
    parse_any_page(xml).map(|(page, _)| page)
}

/// Parses a page of OSS, which encodes the token of the next page as it does keys.
///
/// # Errors
/// As [`parse_page`].
pub fn parse_oss_page(xml: &[u8]) -> Result<Page, XmlError> {
    let (mut page, is_encoded) = parse_any_page(xml)?;
    if is_encoded {
        page.next = page.next.as_deref().map(decode_key).transpose()?;
    }
    Ok(page)
}

/// A page, its keys decoded, and whether they had to be.
fn parse_any_page(xml: &[u8]) -> Result<(Page, bool), XmlError> {
    let mut page = Page::default();
    let mut object = Listed::default();
    let (mut is_encoded, mut is_truncated, mut root) = (false, false, String::new());
    walk(xml, |path, text| {
        match path.strip_prefix("ListBucketResult/").unwrap_or("") {
            "Contents/Key" => object.key = text.into(),
            "Contents/Size" => object.size = value("Size", text, crate::words::number(text.trim()))?,
            "Contents/ETag" => object.etag = some(text).map(|etag| quoted(&etag).into_owned()),
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
    Ok((page, is_encoded))
}

/// Parses an answer to ListBuckets.
///
/// # Errors
/// A document that is malformed, cut off or another, a date that is none, and a page that says it goes on but
/// not where.
pub fn parse_buckets(xml: &[u8]) -> Result<Buckets, XmlError> {
    let mut page = Buckets::default();
    let (mut name, mut created, mut is_truncated, mut root) = (String::new(), 0, false, String::new());
    walk(xml, |path, text| {
        match path.strip_prefix("ListAllMyBucketsResult/").unwrap_or("") {
            "Buckets/Bucket/Name" => name = text.into(),
            "Buckets/Bucket/CreationDate" => created = value("CreationDate", text, parse_iso(text.trim()))?,
            "Buckets/Bucket" => page.buckets.push((std::mem::take(&mut name), std::mem::take(&mut created))),
            "IsTruncated" => is_truncated = text.trim() == "true",
            "NextMarker" => page.next = some(text),
            _ => {}
        }
        if !path.contains('/') {
            root = path.into();
        }
        Ok(())
    })?;
    expect_root(&root, "ListAllMyBucketsResult")?;
    if !is_truncated {
        page.next = None;
    } else if page.next.is_none() {
        return Err(XmlError::NoToken);
    }
    Ok(page)
}

pub(crate) fn expect_root(found: &str, expected: &'static str) -> Result<(), XmlError> {
    if found == expected { Ok(()) } else { Err(XmlError::Unexpected { expected, found: excerpt(found) }) }
}

pub(crate) fn value<T>(element: &'static str, text: &str, parsed: Option<T>) -> Result<T, XmlError> {
    parsed.ok_or_else(|| XmlError::BadValue { element, text: excerpt(text) })
}

pub(crate) fn some(text: &str) -> Option<String> {
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
pub(crate) fn decode_key(encoded: &str) -> Result<String, XmlError> {
    let spaced = encoded.replace('+', " ");
    let decoded = percent::decode(&spaced).into_owned();
    String::from_utf8(decoded).map_err(|_| XmlError::KeyNotUtf8(excerpt(encoded)))
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

    /// Some servers list ETags bare, and send them in quotes.
    #[test]
    fn etags_are_as_in_the_header() {
        let rows = [
            ("&quot;a&quot;", Some("\"a\"")),
            ("a", Some("\"a\"")),
            (" 70ee1738b6b21e2c8a43f3a5ab0eee71-3 ", Some("\"70ee1738b6b21e2c8a43f3a5ab0eee71-3\"")),
            ("W/&quot;a&quot;", Some("W/\"a\"")),
            ("&quot;&quot;", Some("\"\"")),
            ("&quot;half", Some("\"half")),
            ("", None),
            (" ", None),
        ];
        for (listed, expected) in rows {
            let xml = format!(
                "<ListBucketResult><Contents><Key>k</Key><ETag>{listed}</ETag></Contents></ListBucketResult>"
            );
            for page in [parse_page(xml.as_bytes()), parse_oss_page(xml.as_bytes())] {
                assert_eq!(page.unwrap().objects[0].etag.as_deref(), expected, "{listed}");
            }
        }
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
    fn errors_are_fit_for_a_terminal() {
        let red = "\u{1b}[31m".to_owned() + &"x".repeat(9999);
        let rows = [
            format!("<{}/>", "x".repeat(9999)),
            format!("<ListBucketResult><Contents><Size>{red}</Size></Contents></ListBucketResult>"),
            format!(
                "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>{red}%FF</Key></Contents></ListBucketResult>"
            ),
            format!("<ListBucketResult>&{red};</ListBucketResult>"),
            format!("<ListBucketResult></{red}>"),
        ];
        for xml in rows {
            let said = parse_page(xml.as_bytes()).expect_err(&xml).to_string();
            assert!(!said.contains(char::is_control) && said.len() < 300, "{said:?}");
        }
    }

    #[test]
    fn buckets() {
        let xml = "<ListAllMyBucketsResult><Owner><ID>x</ID></Owner><Buckets>\
            <Bucket><CreationDate>1994-11-06T08:49:37.000Z</CreationDate><Name>one</Name></Bucket>\
            <Bucket><Name>two</Name></Bucket></Buckets></ListAllMyBucketsResult>";
        let buckets = vec![("one".into(), 784_111_777), ("two".into(), 0)];
        assert_eq!(parse_buckets(xml.as_bytes()).unwrap(), Buckets { buckets, next: None });
        let none = parse_buckets(b"<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>");
        assert_eq!(none, Ok(Buckets::default()));
        assert!(parse_buckets(b"<ListBucketResult/>").is_err());
    }

    #[test]
    fn buckets_of_oss() {
        let xml = "<ListAllMyBucketsResult><Prefix>my</Prefix><Marker>a</Marker><MaxKeys>1</MaxKeys>\
            <IsTruncated>true</IsTruncated><NextMarker>one</NextMarker><Owner><ID>1</ID></Owner><Buckets>\
            <Bucket><CreationDate>2014-05-14T11:18:32.000Z</CreationDate><Location>oss-cn-hangzhou</Location>\
            <ExtranetEndpoint>oss-cn-hangzhou.aliyuncs.com</ExtranetEndpoint><Name>one</Name></Bucket></Buckets>\
            </ListAllMyBucketsResult>";
        let expected = Buckets { buckets: vec![("one".into(), 1_400_066_312)], next: Some("one".into()) };
        assert_eq!(parse_buckets(xml.as_bytes()), Ok(expected));
        let lost = xml.replace("NextMarker", "Next");
        assert_eq!(parse_buckets(lost.as_bytes()), Err(XmlError::NoToken));
    }

    #[test]
    fn a_page_of_oss() {
        let xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><Name>b</Name><Prefix>a%2F</Prefix>\
            <MaxKeys>2</MaxKeys><Delimiter>%2F</Delimiter><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
            <NextContinuationToken>CgJiYw%2B%2F--</NextContinuationToken><Contents><Key>a%2Fb%20%2B%E4%B8%AD</Key>\
            <LastModified>2012-02-24T08:43:27.000Z</LastModified><ETag>\"5B3C1A2E053D763E1B002CC607C5A0FE\"</ETag>\
            <Type>Normal</Type><Size>344606</Size><StorageClass>Standard</StorageClass></Contents>\
            <CommonPrefixes><Prefix>a%2Fd%2F</Prefix></CommonPrefixes><KeyCount>2</KeyCount></ListBucketResult>";
        let page = parse_oss_page(xml.as_bytes()).unwrap();
        assert_eq!((page.objects[0].key.as_str(), page.objects[0].size), ("a/b +中", 344_606));
        assert_eq!((page.objects[0].last_modified, page.prefixes), (1_330_073_007, vec!["a/d/".to_owned()]));
        assert_eq!(page.next.as_deref(), Some("CgJiYw+/--"));
        // S3 sends its token as it is, and a '+' in it is one.
        let of_s3 = xml.replace("CgJiYw%2B%2F--", "a+%2B");
        assert_eq!(parse_page(of_s3.as_bytes()).unwrap().next.as_deref(), Some("a+%2B"));
        assert!(parse_oss_page(&xml.as_bytes()[..200]).is_err());
    }
}
