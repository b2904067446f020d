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

#[test]
fn a_sink_suffices_for_uploads() {
    let lab = Lab::new(&["--memory", "--sink"]);
    let aws = |arguments: &[&str]| lab.aws(Keys::Right, arguments);
    lab.file("small", 1000);
    lab.file("large", 17_000_003);
    good(aws(&["s3", "mb", "s3://bucket"]));
    good(aws(&["s3", "cp", "small", "s3://bucket/folder/small", "--metadata", "colour=blue"]));
    good(aws(&["s3", "cp", "large", "s3://bucket/large"]));
    let listed = good(aws(&["s3", "ls", "s3://bucket", "--recursive"]));
    for part in ["1000 folder/small", "17000003 large"] {
        assert!(listed.contains(part), "{listed}lacks {part}");
    }
    let head = good(aws(&["s3api", "head-object", "--bucket", "bucket", "--key", "folder/small"]));
    assert!(head.contains("blue"), "{head}");
    bad(aws(&["s3", "cp", "s3://bucket/large", "large-again"]), "forgets its bytes");
    // Nothing has changed since: nothing is sent.
    assert_eq!(good(aws(&["s3", "sync", ".", "s3://bucket", "--size-only", "--exclude", "small"])), "");
    good(aws(&["s3", "rm", "s3://bucket", "--recursive"]));
    good(aws(&["s3", "rb", "s3://bucket"]));
}

#[test]
fn boto3_uploads_to_a_sink() {
    let lab = Lab::new(&["--synthetic", "other/object=1MiB", "--sink"]);
    good(lab.python("s3_sdk.py", Keys::Right, &["sink", "bucket"]));
}
