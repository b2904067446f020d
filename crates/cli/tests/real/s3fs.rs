//! A bucket of MinIO that s3fs and a mount with `--attributes metadata` share: what either makes and changes,
//! the other shows, byte for byte, with modes, owners, times, links and extended attributes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::bytes;
use crate::guard::{Guard, installed, on_path};
use crate::minio::{ACCESS_KEY, Bucket, SECRET_KEY};
use crate::mountinfo::is_mounted;
use crate::mounts::Mount;
use crate::program::{Ended, run};

/// A bucket that s3fs has mounted, which goes when this is dropped and when the tests are killed.
struct S3fs {
    _guard: Guard,
    point: PathBuf,
}

impl S3fs {
    /// It believes nothing: each question goes to the bucket.
    #[track_caller]
    fn start(bucket: &Bucket) -> S3fs {
        let folder = tempfile::tempdir().unwrap();
        let point = folder.path().join("mounted");
        fs::create_dir(&point).unwrap();
        let mut command = Command::new(installed("s3fs", &on_path("s3fs")));
        command.arg(&bucket.name).arg(&point).arg("-f");
        for option in [
            &format!("url={}", bucket.curl.url),
            "use_path_request_style,endpoint=us-east-1,use_xattr",
            "max_stat_cache_size=0,attr_timeout=0,entry_timeout=0,negative_timeout=0",
        ] {
            command.args(["-o", option]);
        }
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.envs([("AWSACCESSKEYID", ACCESS_KEY), ("AWSSECRETACCESSKEY", SECRET_KEY)]);
        let mut guard = Guard::start_mount(folder, &point, &command);
        guard.wait_for("s3fs", |_| is_mounted(&point).then_some(()));
        S3fs { _guard: guard, point }
    }
}

/// With its staging folder and the journal of its renames in `beside`.
#[track_caller]
fn ours(bucket: &Bucket, lifetime: &str, beside: &Path) -> Mount {
    let (endpoint, staging) = (bucket.curl.url.clone(), beside.join("staging"));
    let mut command = bucket.flatout(&[]);
    command.env("XDG_STATE_HOME", beside.join("state"));
    let line = ["--endpoint-url", &endpoint, "--attributes", "metadata", "--close-to-open"];
    let lifetimes = ["--attribute-lifetime", lifetime, "--negative-lifetime", "0s"];
    let staged = ["--staging", staging.to_str().unwrap()];
    Mount::start(&command, &format!("s3://{}", bucket.name), &[&line[..], &lifetimes, &staged].concat())
}

/// By a shell that ends at the first failure.
#[track_caller]
fn shell(at: &Path, script: &str) -> Ended {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "240", "bash", "-euo", "pipefail", "-c", script]);
    command.env("LC_ALL", "C.UTF-8").env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = run(command.current_dir(at));
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{script}\nin {}", at.display());
    ended
}

/// Everything below a folder. Times are shown as far as a program has set them.
const LOOK: &str = r#"python3 - <<'END'
import hashlib, json, os, stat
for folder, folders, files in os.walk('.'):
    for path in sorted(os.path.join(folder, name) for name in folders + files):
        info = os.lstat(path)
        row = [path, stat.filemode(info.st_mode), info.st_uid, info.st_gid]
        row.append(info.st_mtime_ns if info.st_mtime < 1_500_000_000 else 'now')
        if stat.S_ISLNK(info.st_mode):
            row.append((os.readlink(path), info.st_size))
        else:
            row.append({name: os.getxattr(path, name).hex() for name in sorted(os.listxattr(path))})
        if stat.S_ISREG(info.st_mode):
            content = open(path, 'rb').read()
            row += [info.st_size, len(content), hashlib.sha256(content).hexdigest()]
        print(json.dumps(row, ensure_ascii=False))
END"#;

/// With `BIG`, a file of several parts to either program.
const MADE: &str = r#"umask 022
mkdir folder folder/inner folder/inner/none 'with space' ümläut empty closed
printf one > folder/one; printf two > folder/inner/two; : > nothing
printf content > 'with space/a b+c%41&d=e;f.txt'; printf grün > 'ümläut/日本 é.txt'
cp $BIG big
ln -s one folder/relative; ln -s ../folder/inner 'with space/up'; ln -s /etc/hostname absolute
ln -s 'nowhere at ü' broken; ln -s nothing removed
chown 7:8 folder/inner/two; chown 12:34 closed; chown 1000:100 big; chown -h 5:6 broken
chmod 640 folder/one; chmod 711 folder/inner; chmod 1700 closed; chmod 444 nothing; chmod 755 big
python3 - <<'END'
import os
os.setxattr('folder/one', 'user.color', b'blue')
os.setxattr('folder/one', 'user.ü', 'größe, "quoted": {}'.encode())
os.setxattr('big', 'user.all', bytes(range(256)))
os.setxattr('big', 'user.gone', b'x')
os.setxattr('closed', 'user.of a folder', b'\0')
END
touch -d '2001-02-03 04:05:06.000000007 UTC' folder/inner/two 'with space/a b+c%41&d=e;f.txt'
touch -d '2002-03-04 05:06:07.5 UTC' big; touch -h -d '2002-03-04 05:06:08 UTC' absolute
touch -d '2003-04-05 06:07:08 UTC' closed folder/inner
"#;

/// By the one that has not made it.
const CHANGED: &str = r#"umask 022
chmod 600 folder/one; chmod 4711 big; chmod 751 closed; chown 21:22 nothing; chown -h 23:24 absolute
touch -d '2004-05-06 07:08:09.123456789 UTC' 'ümläut/日本 é.txt' folder/one
python3 - <<'END'
import os
os.setxattr('folder/one', 'user.color', b'green')
os.setxattr('folder/one', 'user.new', b'n' * 300)
os.removexattr('big', 'user.gone')
os.setxattr('closed', 'user.more', b'more')
END
printf ' and more' >> folder/inner/two
mv big 'big, moved'; mv nothing closed/nothing; mv absolute folder/inner/absolute
mv folder moved
mv 'with space' 'with more space'
rm removed; rmdir empty
ln -s 'big, moved' linked; mkdir fresh; printf fresh > fresh/file
# On a disk what is moved there changes them.
touch -d '2003-04-05 06:07:09 UTC' closed moved/inner
"#;

/// By the first again.
const CHANGED_AGAIN: &str = r#"
chmod 666 moved/one; chmod 700 fresh; chown 31:32 moved fresh/file
mv 'big, moved' fresh/big; rm linked broken; touch -d '2005-06-07 08:09:10 UTC' fresh/big moved/inner
mv moved/inner 'fresh/inner ü'
printf other > moved/one
"#;

#[track_caller]
fn check_shared(name: &str, first_is_ours: bool) {
    let bucket = Bucket::new(name);
    let (local, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (theirs, ours) = (S3fs::start(&bucket), ours(&bucket, "0s", beside.path()));
    let places = match first_is_ours {
        true => [ours.path(), &theirs.point],
        false => [&theirs.point, ours.path()],
    };
    let big = beside.path().join("big");
    fs::write(&big, bytes((31 << 20) + 7)).unwrap();
    let made = format!("BIG={}\n{MADE}", big.display());
    for (script, by) in [(&*made, places[0]), (CHANGED, places[1]), (CHANGED_AGAIN, places[0])] {
        shell(local.path(), script);
        shell(by, script);
        let expected = shell(local.path(), LOOK);
        for (whose, at) in [("s3fs", &*theirs.point), ("flatout", ours.path())] {
            let shown = shell(at, LOOK);
            let missing = expected.text().lines().filter(|line| !shown.text().contains(line));
            let more = shown.text().lines().filter(|line| !expected.text().contains(line));
            let different: Vec<String> =
                missing.map(|line| format!("- {line}")).chain(more.map(|line| format!("+ {line}"))).collect();
            assert!(different.is_empty(), "{whose} after {script}\n{}", different.join("\n"));
        }
    }
}

#[test]
fn what_s3fs_makes_we_show_and_change() {
    check_shared("s3fs-first", false);
}

#[test]
fn what_we_make_s3fs_shows_and_changes() {
    check_shared("s3fs-second", true);
}

/// Neither its ETag nor the second of its time tells that the mode is another.
#[test]
fn what_s3fs_changes_within_a_second_is_seen_after_the_lifetime() {
    let (bucket, beside) = (Bucket::new("s3fs-second-of-time"), tempfile::tempdir().unwrap());
    let (theirs, ours) = (S3fs::start(&bucket), ours(&bucket, "1s", beside.path()));
    // As much of a second as there is.
    let into = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_millis();
    std::thread::sleep(Duration::from_millis(1010 - u64::from(into)));
    shell(&theirs.point, "umask 022; printf content > file");
    assert_eq!(shell(ours.path(), "stat -c %a file").text(), "644\n");
    shell(&theirs.point, "chmod 600 file");
    let (changed, mut seen) = (Instant::now(), String::new());
    while seen != "600\n" && changed.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(100));
        shell(ours.path(), "stat -c %a file").text().clone_into(&mut seen);
    }
    assert_eq!(seen, "600\n", "after {:?}", changed.elapsed());
}
