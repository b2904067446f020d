//! Documents as S3, MinIO and OSS write them (the API references; `crates/server`), and what they are read
//! as.

use proptest::prelude::*;

use super::*;
use crate::percent;
use crate::time::format_iso;

const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
const DAY_S: u64 = 784_111_777;
const DAY: &str = "1994-11-06T08:49:37.000Z";

fn document(root: &str, inside: &str) -> Vec<u8> {
    format!("{HEAD}<{root} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inside}</{root}>").into_bytes()
}

#[track_caller]
fn check<T: PartialEq + std::fmt::Debug>(
    parse: fn(&[u8]) -> Result<T, XmlError>,
    root: &str,
    inside: &str,
    expected: T,
) {
    assert_eq!(parse(&document(root, inside)), Ok(expected), "{inside}");
}

/// `words` are in the error.
#[track_caller]
fn refuse<T: std::fmt::Debug>(
    parse: fn(&[u8]) -> Result<T, XmlError>,
    root: &str,
    inside: &str,
    words: &str,
) {
    let said = parse(&document(root, inside)).expect_err(inside).to_string();
    assert!(said.contains(words), "{said}");
}

#[test]
fn ids_of_uploads() {
    let root = "InitiateMultipartUploadResult";
    let id = "VXBsb2FkIElE+/=";
    check(
        parse_created,
        root,
        &format!("<Bucket>b</Bucket><Key>k</Key><UploadId>{id}</UploadId>"),
        id.into(),
    );
    check(
        parse_created,
        root,
        &format!("<EncodingType>url</EncodingType><Key>a%2Bb</Key>\n<UploadId>\n{id}\n</UploadId>"),
        id.into(),
    );
    refuse(parse_created, root, "<Key>k</Key>", "no <UploadId>");
    refuse(parse_created, root, "<UploadId> </UploadId>", "no <UploadId>");
    refuse(
        parse_created,
        "Result",
        "<UploadId>x</UploadId>",
        "expected <InitiateMultipartUploadResult>, the origin sent <Result>",
    );
    assert!(parse_created(&document(root, "<UploadId>x</UploadId>")[..120]).is_err());
}

#[test]
fn completions() {
    let root = "CompleteMultipartUploadResult";
    let full = |algorithm, value| Checksum { algorithm, value, kind: Coverage::Full };
    let crc = Algorithm::Crc64Nvme.of(b"123456789");
    let rows = [
        ("<ETag>&quot;a-2&quot;</ETag>", "\"a-2\"", vec![]),
        ("<Location>http://h/b/k</Location><ETag>a-2</ETag>", "\"a-2\"", vec![]),
        (
            "<ETag>\"a-2\"</ETag><ChecksumCRC64NVME>rosUhgp5mIg=</ChecksumCRC64NVME>\
             <ChecksumType>FULL_OBJECT</ChecksumType>",
            "\"a-2\"",
            vec![full(Algorithm::Crc64Nvme, crc)],
        ),
        (
            "<ChecksumType>COMPOSITE</ChecksumType><ChecksumCRC32>y/Q5Jg==-2</ChecksumCRC32><ETag>\"a-2\"</ETag>\
             <ChecksumCRC32C>4waSgw==</ChecksumCRC32C><ChecksumSHA256>x</ChecksumSHA256>",
            "\"a-2\"",
            vec![
                Checksum { kind: Coverage::Composite { parts: 2 }, ..full(Algorithm::Crc32, 0xcbf4_3926) },
                Checksum { kind: Coverage::Composite { parts: 0 }, ..full(Algorithm::Crc32c, 0xe306_9283) },
            ],
        ),
        ("<ETag>\"a-2\"</ETag><ChecksumCRC32>nonsense</ChecksumCRC32>", "\"a-2\"", vec![]),
    ];
    for (inside, etag, checksums) in rows {
        check(parse_completed, root, inside, Completed { etag: etag.into(), checksums });
    }
    refuse(parse_completed, root, "<Key>k</Key>", "no <ETag>");
    refuse(parse_completed, "Error", "<Code>InternalError</Code>", "the origin sent <Error>");
    // S3 keeps the connection alive with blanks before the document.
    let late = [
        b"  \n ".as_slice(),
        b"<CompleteMultipartUploadResult><ETag>\"a\"</ETag></CompleteMultipartUploadResult>",
    ];
    assert_eq!(parse_completed(&late.concat()).unwrap().etag, "\"a\"");
}

#[test]
fn pages_of_parts() {
    let root = "ListPartsResult";
    let s3 = "<Key>k</Key><UploadId>i</UploadId><PartNumberMarker>0</PartNumberMarker>\
        <NextPartNumberMarker>2</NextPartNumberMarker><MaxParts>2</MaxParts><IsTruncated>true</IsTruncated>\
        <ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm>\
        <Part><PartNumber>1</PartNumber><LastModified>1994-11-06T08:49:37.000Z</LastModified>\
        <ETag>&quot;a&quot;</ETag><Size>8388608</Size><ChecksumCRC64NVME>rosUhgp5mIg=</ChecksumCRC64NVME></Part>\
        <Part><ETag>b</ETag><Size>0</Size><PartNumber>2</PartNumber></Part>";
    let first = ListedPart {
        number: 1,
        size: 8_388_608,
        etag: "\"a\"".into(),
        checksum: Some((Algorithm::Crc64Nvme, Algorithm::Crc64Nvme.of(b"123456789"))),
        last_modified: DAY_S,
    };
    // Nothing of the part before leaks into one that states less.
    let second = ListedPart { number: 2, etag: "\"b\"".into(), ..ListedPart::default() };
    let page = PartsPage { parts: vec![first.clone(), second], next: Some(2) };
    check(parse_parts, root, s3, page.clone());
    let last = s3.replace("<IsTruncated>true", "<IsTruncated>false");
    check(parse_parts, root, &last, PartsPage { next: None, ..page });
    let oss = "<EncodingType>url</EncodingType><Key>a%2Bb</Key><IsTruncated>false</IsTruncated><Part>\
        <PartNumber>1</PartNumber><LastModified>1994-11-06T08:49:37.000Z</LastModified><ETag>\"a\"</ETag>\
        <HashCrc64ecma>11051210869376104954</HashCrc64ecma><Size>8388608</Size></Part>";
    let xz = Some((Algorithm::Crc64Xz, Algorithm::Crc64Xz.of(b"123456789")));
    let parts = vec![ListedPart { checksum: xz, ..first }];
    check(parse_parts, root, oss, PartsPage { parts, next: None });
    check(parse_parts, root, "", PartsPage::default());
    let sha = "<Part><PartNumber>1</PartNumber><ETag>a</ETag><ChecksumSHA256>x</ChecksumSHA256></Part>";
    assert_eq!(parse_parts(&document(root, sha)).unwrap().parts[0].checksum, None);
    let rows = [
        (s3.replace("NextPartNumberMarker", "Next"), "not how it goes on"),
        (s3.replace("<NextPartNumberMarker>2", "<NextPartNumberMarker>0"), "not how it goes on"),
        (s3.replace("<PartNumber>2", "<PartNumber>-2"), "<PartNumber> holds `-2`"),
        (s3.replace("<PartNumber>2</PartNumber>", ""), "no <PartNumber>"),
        (s3.replace("<ETag>b</ETag>", ""), "no <ETag>"),
        (s3.replace("<Size>0", "<Size>many"), "<Size> holds `many`"),
        (s3.replace("1994-", "yesterday-"), "<LastModified> holds"),
    ];
    for (inside, words) in rows {
        refuse(parse_parts, root, &inside, words);
    }
    refuse(parse_parts, "ListBucketResult", "", "expected <ListPartsResult>");
}

#[test]
fn pages_of_uploads() {
    let root = "ListMultipartUploadsResult";
    let inside = "<Bucket>b</Bucket><Prefix>a%2F</Prefix><KeyMarker></KeyMarker><UploadIdMarker/>\
        <NextKeyMarker>a%2F+%2B%C3%BC</NextKeyMarker><NextUploadIdMarker>i2</NextUploadIdMarker>\
        <MaxUploads>2</MaxUploads><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>\
        <Upload><Key>a%2F%01</Key><UploadId>i1</UploadId><Initiator><ID>x</ID></Initiator>\
        <StorageClass>STANDARD</StorageClass><Initiated>1994-11-06T08:49:37.000Z</Initiated></Upload>\
        <Upload><Key>a%2F+%2B%C3%BC</Key><UploadId>i2</UploadId></Upload>";
    let upload = |key: &str, id: &str, initiated| Upload { key: key.into(), id: id.into(), initiated };
    let page = UploadsPage {
        uploads: vec![upload("a/\u{1}", "i1", DAY_S), upload("a/ +ü", "i2", 0)],
        next_key: Some("a/ +ü".into()),
        next_id: Some("i2".into()),
    };
    check(parse_uploads, root, inside, page.clone());
    let last = inside.replace("<IsTruncated>true", "<IsTruncated>false");
    check(parse_uploads, root, &last, UploadsPage { next_key: None, next_id: None, ..page });
    let plain = "<Upload><Key> a+%2F </Key><UploadId>i</UploadId></Upload>";
    let uploads = vec![upload(" a+%2F ", "i", 0)];
    check(parse_uploads, root, plain, UploadsPage { uploads, ..UploadsPage::default() });
    check(parse_uploads, root, "", UploadsPage::default());
    let rows = [
        (inside.replace("NextKeyMarker", "Next"), "not how it goes on"),
        (inside.replace("<Key>a%2F%01</Key>", ""), "no <Key>"),
        (inside.replace("<UploadId>i1</UploadId>", ""), "no <UploadId>"),
        (inside.replace("%C3%BC", "%FF"), "not UTF-8"),
        (inside.replace("1994-", ""), "<Initiated> holds"),
    ];
    for (inside, words) in rows {
        refuse(parse_uploads, root, &inside, words);
    }
}

#[test]
fn copies() {
    let inside = format!("<LastModified>{DAY}</LastModified><ETag>&quot;a&quot;</ETag>");
    let copied = Copied { etag: "\"a\"".into(), last_modified: DAY_S, checksum: None };
    for root in ["CopyObjectResult", "CopyPartResult"] {
        check(parse_copied, root, &inside, copied.clone());
        let summed = inside.clone() + "<ChecksumCRC32>AAAAAA==</ChecksumCRC32>";
        let checksum = Some((Algorithm::Crc32, 0));
        check(parse_copied, root, &summed, Copied { checksum, ..copied.clone() });
        refuse(parse_copied, root, "<LastModified>x</LastModified>", "<LastModified> holds `x`");
        refuse(parse_copied, root, "", "no <ETag>");
    }
    refuse(parse_copied, "CopyResult", &inside, "expected <CopyObjectResult>, the origin sent <CopyResult>");
}

#[test]
fn deletions() {
    let root = "DeleteResult";
    let error = |key: &str, message: &str| DeleteError {
        key: key.into(),
        code: "AccessDenied".into(),
        message: message.into(),
    };
    let inside = "<Deleted><Key>a+%2B</Key></Deleted><Error><Key>b&amp;</Key><Code>AccessDenied</Code>\
        <Message>Access\nDenied</Message></Error><Deleted><Key> c</Key><DeleteMarker>true</DeleteMarker></Deleted>\
        <Error><Key>d</Key><Code>AccessDenied</Code></Error>";
    let deleted = Deleted {
        keys: vec!["a+%2B".into(), " c".into()],
        errors: vec![error("b&", "Access Denied"), error("d", "")],
    };
    check(parse_deleted, root, inside, deleted);
    let encoded = "<EncodingType>url</EncodingType><Deleted><Key>a%20%2B%01</Key></Deleted>\
        <Error><Code>AccessDenied</Code><Key>%C3%BC</Key></Error>";
    let deleted = Deleted { keys: vec!["a +\u{1}".into()], errors: vec![error("ü", "")] };
    check(parse_deleted, root, encoded, deleted);
    check(parse_deleted, root, "", Deleted::default());
    assert_eq!(parse_deleted(b" \n"), Ok(Deleted::default()), "a quiet answer of OSS");
    refuse(parse_deleted, "Error", "<Code>MalformedXML</Code>", "the origin sent <Error>");
    assert!(parse_deleted(&document(root, inside)[..200]).is_err());
}

fn encoded(text: &str) -> String {
    let mut out = String::new();
    percent::encode_query(text, &mut out);
    out
}

#[test]
fn tags() {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let two = "<TagSet><Tag><Key>a b</Key><Value>c&amp;d</Value></Tag><Tag><Key>e</Key><Value></Value></Tag></TagSet>";
    check(parse_tags, "Tagging", two, vec![pair("a b", "c&d"), pair("e", "")]);
    check(parse_tags, "Tagging", "<TagSet/>", vec![]);
    // Nothing of the tag before leaks into one that states less.
    let bare = "<TagSet><Tag><Key>a</Key><Value>b</Value></Tag><Tag><Key>c</Key></Tag></TagSet>";
    check(parse_tags, "Tagging", bare, vec![pair("a", "b"), pair("c", "")]);
    refuse(parse_tags, "Tags", "<TagSet/>", "expected <Tagging>");
}

proptest! {
    /// Lists that another writer encodes come back as they were.
    #[test]
    fn uploads_are_read_as_written(
        uploads in prop::collection::vec((any::<String>(), "[a-zA-Z0-9+/=._-]{1,40}", 0u64..4_000_000_000), 0..8),
        as_form: bool,
    ) {
        let uploads: Vec<Upload> = uploads
            .into_iter()
            .filter(|(key, ..)| !key.is_empty())
            .map(|(key, id, initiated)| Upload { key, id, initiated })
            .collect();
        let key = |upload: &Upload| match as_form {
            true => encoded(&upload.key).replace("%20", "+"),
            false => encoded(&upload.key),
        };
        let mut inside = String::from("<EncodingType>url</EncodingType>");
        for upload in &uploads {
            let (key, id, date) = (key(upload), &upload.id, format_iso(upload.initiated));
            inside += &format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId><Initiated>{date}</Initiated></Upload>");
        }
        let last = uploads.last();
        if let Some(last) = last {
            inside += &format!("<IsTruncated>true</IsTruncated><NextKeyMarker>{}</NextKeyMarker>", key(last));
        }
        let next_key = last.map(|last| last.key.clone());
        let page = UploadsPage { uploads, next_key, next_id: None };
        prop_assert_eq!(parse_uploads(&document("ListMultipartUploadsResult", &inside)), Ok(page));
    }

    #[test]
    fn no_text_panics(xml in "(<[A-Za-z]{0,12}>|</[A-Za-z]{0,12}>|<(Upload|Part|Error|Key|ETag)/>|[&;#x0-9 %+-]{0,4}){0,12}") {
        for root in ["ListPartsResult", "ListMultipartUploadsResult", "DeleteResult", "CopyObjectResult"] {
            let document = document(root, &xml);
            let _ = (parse_parts(&document), parse_uploads(&document), parse_deleted(&document));
            let _ = (parse_copied(&document), parse_created(&document), parse_completed(&document));
        }
    }
}
