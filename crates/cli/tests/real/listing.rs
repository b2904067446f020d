//! `flatout ls` of MinIO's buckets, prefixes and pages.

use crate::minio::Bucket;
use crate::program::run;

#[track_caller]
fn check(bucket: &Bucket, arguments: &[&str], want: &[&str]) {
    let ended = run(&mut bucket.flatout(arguments)).clean();
    assert_eq!(ended.text().lines().collect::<Vec<_>>(), want, "{arguments:?}");
}

#[test]
fn one_level_or_all_of_them() {
    let bucket = Bucket::new("list-levels");
    for key in ["a/1", "a/2", "a/b/3", "c"] {
        bucket.put(key, key.as_bytes(), &[]);
    }
    check(&bucket, &["ls", &bucket.s3("")], &["a/", "c"]);
    check(&bucket, &["ls", &bucket.s3("a/")], &["1", "2", "b/"]);
    check(&bucket, &["ls", "-r", &bucket.s3("")], &["a/1", "a/2", "a/b/3", "c"]);
    check(&bucket, &["ls", "-r", &bucket.s3("a/")], &["1", "2", "b/3"]);
}

#[test]
fn sizes_and_times() {
    let bucket = Bucket::new("list-long");
    bucket.put("model", &[7; 1536], &[]);
    for (arguments, size) in [(["ls", "-l"], "1536"), (["ls", "-lH"], "1.5KiB")] {
        let ended = run(&mut bucket.flatout(&[&arguments[..], &[&bucket.s3("")]].concat())).clean();
        let words: Vec<&str> = ended.text().split_whitespace().collect();
        assert_eq!(words[words.len() - 2..], [size, "model"]);
        assert!(words[0].starts_with("20"), "a date: {words:?}");
    }
}

#[test]
fn buckets() {
    let bucket = Bucket::new("list-buckets");
    let ended = run(&mut bucket.flatout(&["ls"])).clean();
    assert!(ended.text().lines().any(|line| line == "s3://list-buckets"), "{}", ended.text());
}

#[test]
fn more_than_a_page() {
    let bucket = Bucket::new("list-pages");
    bucket.curl.put_many(&bucket.name, "many/[1001-2100]", b"x");
    let ended = run(&mut bucket.flatout(&["ls", "-r", &bucket.s3("many/")])).clean();
    let want: Vec<String> = (1001..=2100).map(|number: u32| number.to_string()).collect();
    assert_eq!(ended.text().lines().collect::<Vec<_>>(), want);
}
