//! A root on a disk that is full.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use flatout_server::{Origin, Store};

use crate::client::{Answer, bytes, options, send};

#[test]
fn a_full_disk_was_an_internal_error_and_kept_what_had_no_room() {
    let can = |flags: &&str| {
        Command::new("unshare").args([flags, "true"]).output().is_ok_and(|done| done.status.success())
    };
    let flags = ["-m", "-rm"].into_iter().find(can).expect(
        "a disk that fills up needs a mount namespace: install util-linux, and run the tests as root with CAP_SYS_ADMIN, or \
         let users make namespaces",
    );
    let folder = tempfile::tempdir().unwrap();
    // Only the processes of its namespace see the disk: the test goes on there, in its folder.
    let line = "mount -t tmpfs -o size=1m none \"$1\" && cd \"$1\" && exec \"$2\" --exact full::on_a_small_disk --ignored";
    let inside = Command::new("unshare")
        .args([flags, "sh", "-c", line, "sh"])
        .args([folder.path(), &std::env::current_exe().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&inside.stdout);
    assert!(inside.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "runs in a namespace of its own, where the disk is"]
fn on_a_small_disk() {
    let root = std::env::current_dir().unwrap();
    let origin = Origin::start(options(Store::Root(root.clone()))).unwrap();
    let ask = |method, target: &str, headers, body: &[u8]| {
        send(origin.addresses()[0], method, target, headers, body)
    };
    ask("PUT", "/bucket", &[], b"").expect(200);
    let began = ask("POST", "/bucket/began?uploads", &[], b"").expect(200);
    let id = began.xml("UploadId").unwrap();
    ask("PUT", "/bucket/k", &[], b"earlier").expect(200);
    let check = |answer: Answer| {
        let answer = answer.expect(507);
        assert_eq!(answer.xml("Code").as_deref(), Some("XMinioStorageFull"));
        let why = answer.xml("Message").unwrap();
        assert!(why.contains(root.to_str().unwrap()) && why.contains("No space left on device"), "{why}");
    };
    let mut filler = File::create("filler").unwrap();
    while filler.write(&[1; 4096]).is_ok() {}
    drop(filler);
    let before = files();
    let big = bytes("big", 300_000);
    for headers in [&[][..], &[("x-oss-date", "")][..]] {
        check(ask("PUT", "/bucket/k", headers, &big));
        check(ask("PUT", &format!("/bucket/began?partNumber=1&uploadId={id}"), headers, &big));
        check(ask("POST", "/bucket/more?uploads", headers, b""));
    }
    assert_eq!(files(), before);
    assert_eq!(ask("GET", "/bucket/k", &[], b"").expect(200).body, b"earlier");
    std::fs::remove_file("filler").unwrap();
    ask("PUT", "/bucket/k", &[], &big).expect(200);
    ask("DELETE", &format!("/bucket/began?uploadId={id}"), &[], b"").expect(204);
}

/// Files and folders here, but for the locks.
fn files() -> Vec<String> {
    let found =
        Command::new("find").args([".", "-path", "./.flatout/locks", "-prune", "-o", "-print"]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    let mut names: Vec<String> = found.lines().map(str::to_owned).collect();
    names.sort();
    names
}
