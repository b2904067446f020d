//! What flatout writes, the clients of S3 and OSS read, and flatout reads what they write: byte for byte,
//! with what describes it.

use std::fs;
use std::path::Path;
use std::process::Command;

use flatout_wire::checksum::Algorithm;

use crate::bytes;
use crate::clients::{Keys, Lab, good};
use crate::flatout;
use crate::folder::Folder;
use crate::guard::installed;
use crate::minio::{self, Bucket, cache};
use crate::program::run;
use crate::served::{ACCESS_KEY, SECRET_KEY};
use crate::versitygw;

/// One request, and parts.
const LENGTHS: [usize; 3] = [0, 1_000, 3 * (5 << 20) + 17];
const KEY: &str = "folder/a b+ü%1";
/// What describes each object.
const DESCRIBED: [&str; 6] =
    ["--metadata", "colour=blue", "--content-type", "a/b", "--cache-control", "max-age=3"];

/// The program, asking `lab` for OSS.
fn oss(lab: &Lab, arguments: &[&str]) -> Command {
    let more = ["--oss-endpoint", lab.url(), "--oss-region", "cn-hangzhou"];
    let mut command = flatout(&[arguments, &more].concat());
    command.envs([("OSS_ACCESS_KEY_ID", ACCESS_KEY), ("OSS_ACCESS_KEY_SECRET", SECRET_KEY)]);
    command
}

/// `flatout stat` names all that describes it.
#[track_caller]
fn check_described(stat: &mut Command) {
    let said = run(stat).clean();
    for word in ["a/b", "colour", "blue"] {
        assert!(said.text().contains(word), "{word}: {}", said.text());
    }
}

#[test]
fn oss_clients_read_what_we_wrote() {
    for length in LENGTHS {
        let lab = Lab::new(&["--memory"]);
        let body = lab.file("file", length);
        let (url, file) = (format!("oss://bucket/{KEY}"), lab.path("file"));
        run(&mut oss(&lab, &["mb", "oss://bucket"])).clean();
        let copy = [&["cp", &file, &url, "--part-size", "5MiB"], &DESCRIBED[..]].concat();
        run(&mut oss(&lab, &copy)).clean();
        let crc = Algorithm::Crc64Xz.of(&body).to_string();
        for version in ["v1", "v4"] {
            good(lab.ossutil(version, Keys::Right, &["cp", &url, "by-ossutil", "-f"]));
            lab.is_file("by-ossutil", &body);
            let stat = good(lab.ossutil(version, Keys::Right, &["stat", &url]));
            for word in [&crc, "blue", "a/b", "max-age=3"] {
                assert!(stat.contains(word), "{word}: {stat}");
            }
            let read = [version, "read", "bucket", KEY, "by-python"];
            let said = good(lab.python("oss_sdk.py", Keys::Right, &read));
            lab.is_file("by-python", &body);
            let described = format!("a/b max-age=3 {{'colour': 'blue'}} {crc}");
            assert!(said.contains(&described), "{said}lacks {described}");
        }
        good(lab.oss_go(Keys::Right, &[], &["download", "bucket", KEY, "by-go"]));
        lab.is_file("by-go", &body);
        let stat = good(lab.oss_go(Keys::Right, &[], &["stat", "bucket", KEY]));
        assert!(stat.contains("colour blue") && stat.contains(&format!("crc64 {crc} {crc}")), "{stat}");
    }
}

#[test]
fn we_read_what_oss_clients_wrote() {
    for length in LENGTHS {
        let lab = Lab::new(&["--memory"]);
        let body = lab.file("file", length);
        let url = format!("oss://bucket/{KEY}");
        run(&mut oss(&lab, &["mb", "oss://bucket"])).clean();
        let with = "x-oss-meta-colour:blue#Content-Type:a/b#Cache-Control:max-age=3";
        let writers: [&dyn Fn() -> String; 2] =
            [&|| good(lab.ossutil("v4", Keys::Right, &["cp", "file", &url, "-f", "--meta", with])), &|| {
                good(lab.python("oss_sdk.py", Keys::Right, &["v4", "write", "bucket", KEY, "file"]))
            }];
        for write in writers {
            write();
            let to = lab.path("by-us");
            let said = run(&mut oss(&lab, &["cp", &url, &to, "--json"])).clean();
            assert_eq!(said.events()[0]["verified"], "crc64xz", "{}", said.text());
            lab.is_file("by-us", &body);
            check_described(&mut oss(&lab, &["stat", &url]));
            run(&mut oss(&lab, &["rm", &url])).clean();
        }
    }
}

/// One of the clients of S3 in Python, asking that server, with `home` as its home.
pub fn python(bucket: &Bucket, keys: (&str, &str), home: &Folder, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "90"]);
    command.arg(installed(program, &[cache().join("python/bin").join(program)]));
    command.env_clear().env("HOME", home.path());
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.envs([("AWS_ACCESS_KEY_ID", keys.0), ("AWS_SECRET_ACCESS_KEY", keys.1)]);
    command.envs([("AWS_EC2_METADATA_DISABLED", "true"), ("AWS_MAX_ATTEMPTS", "1"), ("LANG", "C.UTF-8")]);
    command.envs([("AWS_DEFAULT_REGION", "us-east-1"), ("AWS_ENDPOINT_URL", &bucket.curl.url)]);
    command
}

#[track_caller]
fn check_s3(bucket: &Bucket, keys: (&str, &str)) {
    let (folder, home) = (Folder::new(), Folder::new());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/clients/s3_sdk.py");
    let variables = [("AWS_ACCESS_KEY_ID", keys.0), ("AWS_SECRET_ACCESS_KEY", keys.1)];
    let ours = |arguments: &[&str]| bucket.flatout_as(&variables, arguments);
    let aws = |arguments: &[&str]| {
        let copy = ["s3", "cp", "--only-show-errors"];
        good(run(python(bucket, keys, &home, "aws").args(copy).args(arguments)))
    };
    let boto3 = |arguments: &[&str]| {
        let mut command = python(bucket, keys, &home, "python");
        good(run(command.arg("-B").arg(&script).arg(&bucket.curl.url).args(arguments)))
    };
    let (file, back, url) = (folder.at("file"), folder.at("back"), bucket.s3(KEY));
    for length in LENGTHS {
        let body = bytes(length);
        fs::write(&file, &body).unwrap();
        run(&mut ours(&[&["cp", &file, &url, "--part-size", "5MiB"], &DESCRIBED[..]].concat())).clean();
        aws(&[&url, &back]);
        assert!(fs::read(&back).unwrap() == body, "aws-cli: other bytes of {length}");
        let said = boto3(&["read", &bucket.name, KEY, &back]);
        assert!(fs::read(&back).unwrap() == body, "boto3: other bytes of {length}");
        let crc = Algorithm::Crc64Nvme.encode(Algorithm::Crc64Nvme.of(&body));
        let described = format!("a/b max-age=3 {{'colour': 'blue'}} {crc}");
        assert!(said.contains(&described), "{length}: {said}lacks {described}");

        let writers: [(&str, &dyn Fn() -> String); 2] = [
            ("aws-cli", &|| aws(&[&DESCRIBED[..], &[&file, &url]].concat())),
            ("boto3", &|| boto3(&["write", &bucket.name, KEY, &file])),
        ];
        for (name, write) in writers {
            // Each begins with nothing there.
            run(&mut ours(&["rm", &url])).clean();
            write();
            run(&mut ours(&["cp", &url, &back])).clean();
            assert!(fs::read(&back).unwrap() == body, "{name}: other bytes of {length}");
            check_described(&mut ours(&["stat", &url]));
        }
    }
}

#[test]
fn s3_clients_and_we_read_each_other_at_minio() {
    check_s3(&Bucket::new("both-ways"), (minio::ACCESS_KEY, minio::SECRET_KEY));
}

#[test]
fn s3_clients_and_we_read_each_other_at_versitygw() {
    let bucket = versitygw::bucket("both-ways");
    check_s3(&bucket, (minio::ACCESS_KEY, minio::SECRET_KEY));
}

#[test]
fn s3_clients_and_we_read_each_other_at_our_own_server() {
    let lab = Lab::new(&["--memory"]);
    lab.bucket("both-ways");
    let bucket = Bucket { name: "both-ways".into(), curl: lab.served.curl.clone() };
    check_s3(&bucket, (ACCESS_KEY, SECRET_KEY));
}
