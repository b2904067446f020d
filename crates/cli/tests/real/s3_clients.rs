//! S3 as `flatout serve` speaks it, judged by Amazon's own clients: aws-cli and boto3.

use crate::clients::{Keys, Lab, bad, good};

const REFUSALS: [(Keys, &str); 2] =
    [(Keys::WrongSecret, "SignatureDoesNotMatch"), (Keys::Unknown, "InvalidAccessKeyId")];

#[test]
fn aws_cli_brings_lists_fetches_and_removes() {
    let lab = Lab::new(&["--memory"]);
    let aws = |arguments: &[&str]| good(lab.aws(Keys::Right, &[&["s3"], arguments].concat()));
    // More than 8 MiB: it goes and comes in parts.
    let (small, large) = (lab.file("small", 1000), lab.file("large", 17_000_003));
    aws(&["mb", "s3://bucket"]);
    aws(&["cp", "small", "s3://bucket/folder/a b+ü%1"]);
    aws(&["cp", "large", "s3://bucket/large"]);
    aws(&["cp", "s3://bucket/folder/a b+ü%1", "small-again"]);
    aws(&["cp", "s3://bucket/large", "large-again"]);
    lab.is_file("small-again", &small);
    lab.is_file("large-again", &large);
    let listed = aws(&["ls", "s3://bucket", "--recursive"]);
    for part in ["1000 folder/a b+ü%1", "17000003 large"] {
        assert!(listed.contains(part), "{listed}lacks {part}");
    }
    aws(&["rm", "s3://bucket", "--recursive"]);
    assert_eq!(aws(&["ls", "s3://bucket"]), "");
    aws(&["rb", "s3://bucket"]);
}

#[test]
fn aws_cli_is_told_what_is_wrong() {
    let lab = Lab::new(&["--memory"]);
    for (keys, code) in REFUSALS {
        bad(lab.aws(keys, &["s3", "ls"]), code);
    }
    bad(lab.aws(Keys::Right, &["s3", "ls", "s3://nowhere"]), "NoSuchBucket");
}

#[test]
fn boto3_does_everything() {
    let folder = tempfile::tempdir().unwrap();
    for store in [&["--memory"][..], &["--root", folder.path().to_str().unwrap()]] {
        let lab = Lab::new(store);
        lab.bucket("bucket");
        good(lab.python("s3_sdk.py", Keys::Right, &["all", "bucket"]));
    }
}

#[test]
fn boto3_is_told_what_is_wrong() {
    let lab = Lab::new(&["--memory"]);
    lab.bucket("bucket");
    for (keys, code) in REFUSALS {
        bad(lab.python("s3_sdk.py", keys, &["list", "bucket"]), &format!("403 {code}"));
    }
}
