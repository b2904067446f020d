//! curl as the client that signs by itself: what it puts and gets was never seen by our own signer.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::guard::{installed, on_path};

/// How to reach an origin, and with which keys.
#[derive(Clone)]
pub struct Curl {
    /// `http://HOST:PORT`
    pub url: String,
    /// Access key and secret; None asks without a signature.
    pub keys: Option<(String, String)>,
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Curl {
    /// One request for `target` (encoded, with its query in the order that signing wants).
    pub fn ask(&self, method: &str, target: &str, headers: &[&str], body: Option<&[u8]>) -> Answer {
        let curl = installed("curl", &on_path("curl"));
        let mut command = Command::new(curl);
        command.args([
            "--silent",
            "--show-error",
            "--include",
            "--path-as-is",
            "--globoff",
            "--max-time",
            "60",
        ]);
        // Without --head curl would wait for the body that a HEAD announces.
        if method == "HEAD" {
            command.arg("--head")
        } else {
            command.args(["--request", method])
        };
        command.args(["--header", "Content-Type: application/octet-stream"]);
        if let Some((access, secret)) = &self.keys {
            command.args(["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &format!("{access}:{secret}")]);
            command.args(["--header", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        }
        for header in headers {
            command.args(["--header", header]);
        }
        if body.is_some() {
            command.args(["--data-binary", "@-"]);
        }
        command.arg(format!("{}{target}", self.url));
        let output = fed(&mut command, body.unwrap_or_default());
        assert!(output.status.success(), "{method} {target}: {}", String::from_utf8_lossy(&output.stderr));
        Answer::parse(&output.stdout)
    }

    /// Puts an object, which must go well.
    #[track_caller]
    pub fn put(&self, bucket: &str, key: &str, body: &[u8], headers: &[&str]) {
        self.ask("PUT", &target(bucket, key), headers, Some(body)).is(200);
    }

    /// Puts an object in parts, each with its own headers; what the last answer said.
    #[track_caller]
    pub fn put_parts(&self, bucket: &str, key: &str, begin: &[&str], parts: &[(&[u8], String)]) -> Answer {
        let target = target(bucket, key);
        let begun = self.ask("POST", &format!("{target}?uploads="), begin, None).is(200);
        let id = begun.element("UploadId");
        let mut list = String::from("<CompleteMultipartUpload>");
        for (number, (body, header)) in (1..).zip(parts) {
            let part = format!("{target}?partNumber={number}&uploadId={id}");
            let headers: Vec<&str> =
                [header.as_str()].into_iter().filter(|header| !header.is_empty()).collect();
            let etag = self.ask("PUT", &part, &headers, Some(body)).is(200).header("etag").expect("an etag");
            let checksum = element_of(header);
            list += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{checksum}</Part>");
        }
        list += "</CompleteMultipartUpload>";
        self.ask("POST", &format!("{target}?uploadId={id}"), &[], Some(list.as_bytes())).is(200)
    }

    /// Puts one body under many keys, in one run of curl. `range` is curl's own, as in `[1-1100]`.
    #[track_caller]
    pub fn put_many(&self, bucket: &str, range: &str, body: &[u8]) {
        let (access, secret) = self.keys.as_ref().expect("only signed");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), body).unwrap();
        let output = Command::new(installed("curl", &on_path("curl")))
            .args([
                "--silent",
                "--show-error",
                "--fail",
                "--aws-sigv4",
                "aws:amz:us-east-1:s3",
                "--output",
                "/dev/null",
            ])
            .args([
                "--user",
                &format!("{access}:{secret}"),
                "--header",
                "x-amz-content-sha256: UNSIGNED-PAYLOAD",
            ])
            .arg("--upload-file")
            .arg(file.path())
            .arg(format!("{}/{bucket}/{range}", self.url))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Answer {
    /// Of several heads the last, since a 100 may come first.
    fn parse(raw: &[u8]) -> Answer {
        let end = raw.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&raw[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        match status {
            100..200 => Answer::parse(&raw[end + 4..]),
            _ => Answer { status, head, body: raw[end + 4..].to_vec() },
        }
    }

    #[track_caller]
    pub fn is(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{}\n{}", self.head, self.text());
        self
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
    }

    /// The text of the first element of that name in an XML body.
    #[track_caller]
    pub fn element(&self, name: &str) -> String {
        let text = self.text();
        let found = text.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once("</"));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).0.to_owned()
    }
}

/// `/bucket/key`, encoded as S3 wants it.
pub fn target(bucket: &str, key: &str) -> String {
    format!("/{bucket}/{}", encoded(key))
}

/// Everything but RFC 3986's unreserved characters and `/`; not the program's own encoder, which is what is
/// tested.
pub fn encoded(key: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    key.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

/// `x-amz-checksum-crc32c: value` as the element that completes a part.
fn element_of(header: &str) -> String {
    let Some((name, value)) = header.strip_prefix("x-amz-checksum-").and_then(|rest| rest.split_once(": "))
    else {
        return String::new();
    };
    let name = name.to_ascii_uppercase();
    format!("<Checksum{name}>{value}</Checksum{name}>")
}

fn fed(command: &mut Command, body: &[u8]) -> std::process::Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("curl starts");
    child.stdin.take().expect("it is piped").write_all(body).expect("curl reads its body first");
    child.wait_with_output().expect("curl ends")
}
