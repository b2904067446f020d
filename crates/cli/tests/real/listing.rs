//! `flatout ls` of MinIO's buckets, prefixes and pages.

use std::collections::BTreeSet;
use std::fs;

use crate::folder::Folder;
use crate::minio::Bucket;
use crate::program::run;
use crate::versitygw;

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

/// Enough pages that many are asked for at once, of names that folders sort otherwise than keys. MinIO and
/// versitygw keep objects in folders.
#[test]
fn many_pages_at_once() {
    let folder = Folder::new();
    fs::remove_file(folder.at("model")).unwrap();
    let mut want = Vec::new();
    for at in 0..4_000 {
        let name = match at % 16 {
            0..6 => format!("flat-{at:05}"),
            6 | 7 => format!("deep/{:02}/{at:05}.bin", at % 37),
            8 | 9 => format!("deep.{:02}/{at:x}", at % 5),
            _ => format!("{:x}-{at}/é {at}", at % 11),
        };
        let path = folder.path().join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
        want.push(name);
    }
    want.sort();
    let one_level: BTreeSet<&str> =
        want.iter().map(|name| name.split_inclusive('/').next().unwrap()).collect();
    assert!(one_level.len() > 2_500, "more than two pages");
    for bucket in [Bucket::new("list-many"), versitygw::bucket("list-many")] {
        run(&mut bucket.flatout(&["cp", "-r", &folder.at(""), &bucket.s3("all/")])).clean();
        for more in [&[][..], &["--parallel", "1"]] {
            let ended = run(&mut bucket.flatout(&[&["ls", "-r", &bucket.s3("all/")], more].concat())).clean();
            assert!(ended.text().lines().eq(&want), "{}: another listing with {more:?}", bucket.name);
        }
        let ended = run(&mut bucket.flatout(&["ls", &bucket.s3("all/")])).clean();
        assert!(ended.text().lines().eq(one_level.iter().copied()), "{}: another level", bucket.name);
        let ended = run(&mut bucket.flatout(&["du", "-r", &bucket.s3("all/"), "--json"])).clean();
        assert!(ended.text().contains("4000"), "{}", ended.text());
        run(&mut bucket.flatout(&["rm", "-r", &bucket.s3("all/")])).clean();
        assert_eq!(run(&mut bucket.flatout(&["ls", "-r", &bucket.s3("")])).clean().text(), "");
    }
}
