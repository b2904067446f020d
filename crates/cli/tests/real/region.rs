//! A MinIO of another region than the program thinks: the right bytes all the same, and at the first object
//! only a request more.

use std::path::Path;
use std::process::Command;

use crate::bytes;
use crate::flatout;
use crate::guard::{Guard, free_port, installed};
use crate::minio::{ACCESS_KEY, SECRET_KEY, cache};
use crate::program::run;

const REGION: &str = "eu-west-1";

struct Elsewhere {
    url: String,
    _guard: Guard,
}

impl Elsewhere {
    fn start() -> Elsewhere {
        let program = installed("MinIO", &[cache().join("bin/minio")]);
        let folder = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let (store, console) = (folder.path().join("store"), format!("127.0.0.1:{}", free_port()));
        let command = [
            program.as_str(),
            "server",
            "--address",
            &address,
            "--console-address",
            &console,
            store.to_str().unwrap(),
        ];
        let variables = [
            ("MINIO_ROOT_USER", ACCESS_KEY),
            ("MINIO_ROOT_PASSWORD", SECRET_KEY),
            ("MINIO_SITE_REGION", REGION),
            ("MINIO_BROWSER", "off"),
            ("MINIO_UPDATE", "off"),
        ];
        let mut guard = Guard::start(folder, &command, &variables);
        let url = format!("http://{address}");
        guard.wait_for("MinIO", |_| curl(&url, "/bucket", REGION, None).then_some(()));
        Elsewhere { url, _guard: guard }
    }

    fn flatout(&self, arguments: &[&str]) -> Command {
        let mut command = flatout(&[arguments, &["--endpoint-url", &self.url]].concat());
        command.envs([("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)]);
        command
    }
}

/// A PUT that is signed for a region; whether it was done.
fn curl(url: &str, path: &str, region: &str, body: Option<&Path>) -> bool {
    let mut command = Command::new("curl");
    command.args(["--silent", "--fail", "--output", "/dev/null", "--request", "PUT"]);
    command.args(["--aws-sigv4", &format!("aws:amz:{region}:s3")]);
    command.args(["--user", &format!("{ACCESS_KEY}:{SECRET_KEY}")]);
    command.args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
    if let Some(body) = body {
        command.args(["--data-binary", &format!("@{}", body.display())]);
    }
    command.arg(format!("{url}{path}")).status().expect("curl starts").success()
}

#[test]
fn a_bucket_in_another_region_is_read() {
    let server = Elsewhere::start();
    let folder = tempfile::tempdir().unwrap();
    let (source, body) = (folder.path().join("source"), bytes((3 << 20) + 5));
    std::fs::write(&source, &body).unwrap();
    assert!(curl(&server.url, "/bucket/model", REGION, Some(&source)));
    assert!(!curl(&server.url, "/bucket/model", "us-east-1", Some(&source)), "the server knows its region");
    for region in ["us-east-1", REGION] {
        let arguments = ["cat", "s3://bucket/model", "--region", region, "--part-size", "1MiB"];
        assert!(run(&mut server.flatout(&arguments)).clean().stdout == body, "{region}");
        let ended = run(&mut server.flatout(&["ls", "s3://bucket/", "--region", region])).clean();
        assert_eq!(ended.text(), "model\n");
        let ended = run(&mut server.flatout(&["stat", "s3://bucket/model", "--region", region])).clean();
        assert!(ended.text().contains(&body.len().to_string()), "{}", ended.text());
    }
}
