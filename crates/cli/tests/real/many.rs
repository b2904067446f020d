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

/// Each line by one request, and the large one by parts once its length is known.
#[test]
fn lines_of_commands_are_carried_out_at_minio() {
    let bucket = Bucket::new("lines");
    bucket.curl.put_many(&bucket.name, "many/[1001-1500]", b"content");
    bucket.put("large", &[7; 20 << 20], &[]);
    let folder = Folder::new();
    let (into, commands, sent) = (folder.at("into"), folder.at("commands.txt"), folder.at("sent"));
    fs::create_dir(&into).unwrap();
    fs::write(&sent, b"sent").unwrap();
    let mut lines: Vec<String> = (1001..=1500)
        .map(|number| format!("cp {} {into}/{number}", bucket.s3(&format!("many/{number}"))))
        .collect();
    lines.push(format!("cp {} {into}/", bucket.s3("large")));
    lines.push(format!("cp {sent} {}", bucket.s3("up/")));
    lines.push(format!("mv {} {}", bucket.s3("many/1001"), bucket.s3("moved")));
    // Whatever comes first: the object may have been moved.
    lines.remove(0);
    fs::write(&commands, lines.join("\n")).unwrap();
    let events = run(&mut bucket.flatout(&["run", &commands, "--json"])).clean().events();
    let summary = events.last().unwrap();
    assert_eq!((&summary["lines"], &summary["ok"]), (&502.into(), &502.into()), "{summary}");
    let names = fs::read_dir(&into).unwrap().count();
    assert_eq!(names, 500);
    assert!(fs::read(format!("{into}/large")).unwrap() == [7; 20 << 20]);
    assert_eq!(fs::read(format!("{into}/1500")).unwrap(), b"content");
    let listed = run(&mut bucket.flatout(&["ls", "-r", &bucket.s3("")])).clean();
    assert!(listed.text().contains("moved") && listed.text().contains("up/sent"), "{}", listed.text());
}
