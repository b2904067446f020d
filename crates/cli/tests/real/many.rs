//! Many objects of MinIO: whole folders, more than a page of them, patterns.

use std::fs;

use crate::folder::Folder;
use crate::minio::Bucket;
use crate::program::run;

#[test]
fn folders_and_patterns_of_minio_arrive() {
    let bucket = Bucket::new("many-objects");
    bucket.curl.put_many(&bucket.name, "many/[1001-2100]", b"content");
    bucket.put("large/model", &[7; 3 << 20], &[]);
    let check = |arguments: &[&str], count: usize| {
        let folder = Folder::new();
        let target = folder.at("new");
        let arguments = [&["cp", "--part-size", "1MiB"], arguments, &[&target]].concat();
        let ended = run(&mut bucket.flatout(&arguments)).clean();
        assert!(ended.text().contains(&format!(": {count} objects, ")), "{}", ended.text());
        let entries = fs::read_dir(&target).unwrap();
        let bytes: Vec<u64> = entries.map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(bytes.len(), count);
        assert!(bytes.iter().all(|bytes| [7, 3 << 20].contains(bytes)), "{bytes:?}");
    };
    check(&["-r", &bucket.s3("many")], 1100);
    check(&[&bucket.s3("many/10*")], 99);
    check(&[&bucket.s3("large/*")], 1);
}
