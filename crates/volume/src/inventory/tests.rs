//! Inventories as the documentation of both services shows them, and damaged ones.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use md5::{Digest, Md5};
use proptest::prelude::*;

use super::*;
use crate::record::Record;

/// From S3's User Guide, shortened; `SCHEMA` stands for its columns.
const S3: &str = r#"{
    "sourceBucket": "example-source-bucket",
    "destinationBucket": "arn:aws:s3:::example-inventory-destination-bucket",
    "version": "2016-11-30",
    "creationTimestamp" : "1514944800000",
    "fileFormat": "CSV",
    "fileSchema": "SCHEMA",
    "files": [
        {
            "key": "Inventory/example-source-bucket/2016-11-06T21-32Z/files/939c6d46-85a9.csv.gz",
            "size": 2147483647,
            "MD5checksum": "f11166069f1990abeb9c97ace9cdfabc"
        }
    ]
}"#;
const S3_SCHEMA: &str =
    "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, LastModifiedDate, ETag, StorageClass";

/// From OSS's User Guide, whose MD5 has 28 digits.
const OSS: &str = r#"{
    "creationTimestamp": "1642994594",
    "destinationBucket": "destbucket",
    "fileFormat": "CSV",
    "fileSchema": "SCHEMA",
    "files": [{
            "MD5checksum": "F77449179760C3B13F1E76110F07",
            "key": "destprefix/srcbucket/configid/data/a1574226-b5e5-40ee-91df-356845777c04.csv.gz",
            "size": 2046}],
    "sourceBucket": "srcbucket",
    "version": "2019-09-01"
}"#;
const OSS_SCHEMA: &str = "Bucket, Key, Size, StorageClass, LastModifiedDate, ETag, IsMultipartUploaded, \
     EncryptionStatus, ObjectAcl, TaggingCount, ObjectType, Crc64";

const S3_ROWS: &str = concat!(
    r#""bucket","a+b%2Bc/100%25.txt","","true","false","5","#,
    r#""2024-04-22T01:14:53.000Z","d8e8fca2dc0f896fd7cb4cb0031ba249","STANDARD""#,
    "\n",
    r#""bucket","old","v1","false","false","5","#,
    r#""2024-04-22T01:14:53.000Z","d8e8fca2dc0f896fd7cb4cb0031ba249","STANDARD""#,
    "\n",
    r#""bucket","gone","v2","true","true","","2024-04-22T01:14:53.000Z","","""#,
    "\n",
    r#""bucket","k%C3%BCste","v3","true","false","0","#,
    r#""2024-04-22T01:11:06.000Z","d41d8cd98f00b204e9800998ecf8427e-12","GLACIER""#,
    "\n\n"
);

const OSS_ROWS: &str = concat!(
    r#""srcbucket","images/photo%20one.jpg","102400","Standard","2023-10-26T08:00:00.000Z","#,
    r#""FBA9DEDE5F27731C9771645A39863328","false","false","default","0","Normal","12345""#,
    "\r\n",
    r#""srcbucket","docs/report.pdf",2048000,"IA","2023-10-25T10:30:00.000Z","","#,
    r#""true","true","private","2","Multipart","""#,
    "\r\n",
);

fn s3() -> String {
    S3.replace("SCHEMA", S3_SCHEMA)
}

fn oss() -> String {
    OSS.replace("SCHEMA", OSS_SCHEMA)
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn record(key: &str, size: u64, modified_s: u64, etag: Option<&str>) -> Record {
    Record { key: key.to_owned(), size, modified_s, etag: etag.map(|etag| format!("\"{etag}\"")) }
}

/// Objects as `key size`, skipped rows as `-`, errors as their text.
fn rows(reader: impl Read, schema: &Schema, gzip: bool) -> Vec<String> {
    let text = |row: Result<Option<Record>, InventoryError>| match row {
        Ok(Some(record)) => format!("{} {}", record.key, record.size),
        Ok(None) => "-".to_owned(),
        Err(error) => error.to_string(),
    };
    Rows::new(reader, schema, gzip).map(text).collect()
}

#[test]
fn manifests_of_both_services() {
    let s3 = Manifest::parse(s3().as_bytes()).unwrap();
    assert_eq!(s3.source_bucket, "example-source-bucket");
    assert_eq!(s3.destination_bucket, "example-inventory-destination-bucket");
    assert_eq!(s3.created_s, 1_514_944_800);
    assert_eq!(s3.schema.to_string(), S3_SCHEMA.replace("StorageClass", "another"));
    assert_eq!(s3.files[0].size, 2_147_483_647);
    assert_eq!(s3.files[0].md5.unwrap()[..3], [0xf1, 0x11, 0x66]);
    assert!(s3.files[0].is_gzip());

    let oss = Manifest::parse(oss().as_bytes()).unwrap();
    assert_eq!((oss.source_bucket.as_str(), oss.destination_bucket.as_str()), ("srcbucket", "destbucket"));
    assert_eq!(oss.created_s, 1_642_994_594);
    assert_eq!(oss.files[0].md5, None);
    assert_eq!(oss.schema.fields().len(), 12);
}

#[test]
fn manifests_that_are_refused() {
    for (json, expected) in [
        (String::new(), "EOF while parsing"),
        ("{}".to_owned(), "missing field `sourceBucket`"),
        ("[]".to_owned(), "manifest.json of an inventory, complete"),
        (s3()[..s3().len() / 2].to_owned(), "the manifest cannot be read"),
        (
            s3().replace("\"CSV\"", "\"ORC\""),
            "written as ORC, which cannot be read here; configure it to write CSV",
        ),
        (
            s3().replace("\"CSV\"", "\"Parquet\"").replace("Bucket, Key", "message s3.inventory {"),
            "written as Parquet",
        ),
        (s3().replace(" Size,", ""), "have no Size; configure the inventory to include it"),
        (s3().replace(" VersionId,", " Size,"), "name Size twice"),
        (s3().replace("fileSchema", "schema"), "have no Key"),
        (format!("{}[]}}", &s3()[..s3().find('[').unwrap()]), "names no data files"),
    ] {
        let error = Manifest::parse(json.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} has no {expected:?}");
    }
}

#[test]
fn rows_of_s3() {
    let schema = Manifest::parse(s3().as_bytes()).unwrap().schema;
    let rows: Vec<_> = Rows::new(&gzip(S3_ROWS.as_bytes())[..], &schema, true).map(Result::unwrap).collect();
    let first = record("a b+c/100%.txt", 5, 1_713_748_493, Some("d8e8fca2dc0f896fd7cb4cb0031ba249"));
    let last = record("k\u{fc}ste", 0, 1_713_748_266, Some("d41d8cd98f00b204e9800998ecf8427e-12"));
    assert_eq!(rows, [Some(first), None, None, Some(last)]);
}

#[test]
fn rows_of_oss() {
    let schema = Manifest::parse(oss().as_bytes()).unwrap().schema;
    let rows: Vec<_> = Rows::new(OSS_ROWS.as_bytes(), &schema, false).map(Result::unwrap).collect();
    let etag = Some("FBA9DEDE5F27731C9771645A39863328");
    let first = record("images/photo one.jpg", 102_400, 1_698_307_200, etag);
    assert_eq!(rows, [Some(first), Some(record("docs/report.pdf", 2_048_000, 1_698_229_800, None))]);
}

#[test]
fn a_bad_row_has_its_line_and_column_and_the_next_is_read() {
    let schema = Schema::parse("Key, Size, LastModifiedDate, ETag, IsLatest").unwrap();
    for (row, expected) in [
        ("a,12x,,,", "line 2, column Size: `12x` is not a number of bytes; check that"),
        ("a,,,,", "column Size: `` is not a number"),
        ("a,-1,,,", "column Size: `-1`"),
        ("a,99999999999999999999,,,", "column Size"),
        ("a,1,yesterday,,", "column LastModifiedDate: `yesterday` is not a time"),
        ("a,1,,\"e\u{e9}\",", "column ETag"),
        ("a,1,,,maybe", "column IsLatest: `maybe` is neither true nor false"),
        ("a,1,,", "column 5: the row has 4 columns, the schema 5"),
        ("a,1,,,,", "column 6: the row has 6 columns, the schema 5"),
        (",1,,,", "column Key: the key is empty"),
        ("100%,1,,,", "column Key: `100%` has a `%` without two hexadecimal digits"),
        ("%ff%fe,1,,,", "column Key: `%ff%fe` is not UTF-8 when decoded"),
        ("\"a,1,,,", "the row has 1 columns"),
    ] {
        let rows = rows(format!("x,1,,,\n{row}\ny,2,,W/\"\"e\"\",true\n").as_bytes(), &schema, false);
        assert_eq!((rows[0].as_str(), rows[2].as_str(), rows.len()), ("x 1", "y 2", 3), "{row}");
        assert!(
            rows[1].starts_with("line 2") && rows[1].contains(expected),
            "{row}: {} has no {expected:?}",
            rows[1]
        );
    }
}

#[test]
fn damaged_files_end_with_an_error() {
    let schema = Manifest::parse(s3().as_bytes()).unwrap().schema;
    let whole = gzip(S3_ROWS.as_bytes());
    for bytes in [&whole[..whole.len() - 1], &whole[..whole.len() / 2], &[], S3_ROWS.as_bytes()] {
        let mut found = Rows::new(bytes, &schema, true).filter_map(Result::err);
        let error = found.next().expect("it is damaged");
        assert!(matches!(error, InventoryError::Read { .. }) && !error.is_skippable(), "{error}");
        assert!(found.next().is_none());
    }
}

#[test]
fn gzip_of_several_members_is_read_to_its_end() {
    let schema = Schema::parse("Key, Size").unwrap();
    let members = [gzip(b"a,1\nb"), gzip(b""), gzip(b",2\n")].concat();
    assert_eq!(rows(&members[..], &schema, true), ["a 1", "b 2"]);
}

#[test]
fn files_are_compared_with_the_manifest() {
    let schema = Schema::parse("Key, Size").unwrap();
    let data = gzip(b"a,1\nb,2\n");
    let md5 = Md5::digest(&data).into();
    let file = |size, md5| DataFile { key: "data.csv.gz".to_owned(), size, md5 };
    for file in [file(data.len() as u64, Some(md5)), file(0, Some(md5)), file(0, None)] {
        assert_eq!(rows(file.check(&data[..]), &schema, true), ["a 1", "b 2"]);
    }
    for (file, expected) in [
        (file(0, Some([7; 16])), "its MD5 is not the manifest's; fetch the file again"),
        (file(7, Some(md5)), "bytes, not the manifest's 7; fetch the file again"),
    ] {
        let rows = rows(file.check(&data[..]), &schema, true);
        assert!(rows.last().unwrap().contains(expected), "{rows:?}");
    }
}

#[test]
fn columns_are_guessed_where_one_documented_order_fits() {
    let s3 = Manifest::parse(s3().as_bytes()).unwrap().schema;
    assert_eq!(Schema::guess(S3_ROWS.lines().next().unwrap().as_bytes()).unwrap(), s3);
    let oss = "b,k,1,Standard,2023-10-26T08:00:00.000Z,FBA9DEDE5F27731C9771645A39863328,Normal\r\n";
    let expected = Schema::parse("Bucket, Key, Size, StorageClass, LastModifiedDate, ETag, ObjectType");
    assert_eq!(Schema::guess(oss.as_bytes()).unwrap(), expected.unwrap());
    let header = b"key,e_tag,size\n";
    assert_eq!(Schema::guess(header).unwrap(), Schema::parse("Key, ETag, Size").unwrap());
    assert_eq!(rows(&b"key,e_tag,size\na,,1\n"[..], &Schema::guess(header).unwrap(), false), ["-", "a 1"]);
    for unclear in ["", "b,k", "k,1", "b,k,1,Standard", OSS_ROWS.lines().next().unwrap()] {
        let error = Schema::guess(unclear.as_bytes()).unwrap_err();
        assert!(matches!(error, InventoryError::UnknownColumns { .. }), "{unclear}: {error}");
    }
}

proptest! {
    #[test]
    fn cells_are_those_that_were_written(cells in proptest::collection::vec("[a-z,\" é]{0,6}", 1..8)) {
        let quote = |cell: &String| format!("\"{}\"", cell.replace('"', "\"\""));
        let quoted: Vec<String> = cells.iter().map(quote).collect();
        let mut split = csv_line::Cells::default();
        split.split(b"some,other,line,before");
        split.split(quoted.join(",").as_bytes());
        let found: Vec<_> = split.iter().map(|cell| String::from_utf8(cell.to_vec()).unwrap()).collect();
        prop_assert_eq!(found, cells);
    }

    #[test]
    fn keys_survive(key in "\\PC{1,20}") {
        let encoded: String = key.bytes().map(|byte| match byte {
            b' ' => "+".to_owned(),
            b'a'..=b'z' | b'/' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        }).collect();
        let schema = Schema::parse("Key, Size").unwrap();
        let row = format!("\"{encoded}\",\"1\"\n");
        prop_assert_eq!(rows(row.as_bytes(), &schema, false), [format!("{key} 1")]);
    }

    #[test]
    fn any_bytes_are_rows_or_errors(bytes in proptest::collection::vec(any::<u8>(), 0..300), gzip: bool) {
        let schema = Schema::parse("Bucket, Key, Size").unwrap();
        let lines = bytes.split(|&byte| byte == b'\n').count();
        prop_assert!(rows(&bytes[..], &schema, gzip).len() <= lines);
        let _ = (Schema::guess(&bytes), Manifest::parse(&bytes));
    }
}
