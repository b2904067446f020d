//! TLS with programs that nobody here wrote: nginx (OpenSSL) and MinIO (Go) as origins, curl as a client of
//! ours.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::LazyLock;

use crate::certificates::{Authority, Identity, NOW, PAST};
use crate::folder::Folder;
use crate::guard::{Guard, free_port, installed, on_path};
use crate::minio::{ACCESS_KEY, SECRET_KEY};
use crate::program::run;
use crate::{bytes, flatout};

/// nginx with a server for each kind of TLS, over one file.
struct Nginx {
    guard: Guard,
    body: Vec<u8>,
    old: u16,
    new: u16,
    expired: u16,
    named: u16,
}

static SHARED: LazyLock<Nginx> = LazyLock::new(Nginx::start);

impl Nginx {
    fn start() -> Nginx {
        let program = installed("nginx", &on_path("nginx"));
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let prefix = folder.path().to_str().unwrap().to_owned();
        fs::set_permissions(&prefix, fs::Permissions::from_mode(0o755)).unwrap();
        write_identity(folder.path(), "right", &authority.identity(&["127.0.0.1"], NOW));
        write_identity(folder.path(), "expired", &authority.identity(&["127.0.0.1"], PAST));
        write_identity(folder.path(), "named", &authority.identity(&["origin.test"], NOW));
        // This value is never dropped: what it needs lies in the folder that the guard removes.
        fs::copy(authority.path(), folder.path().join("ca.pem")).unwrap();
        let body = bytes(6_000_001);
        fs::write(folder.path().join("model"), &body).unwrap();
        fs::set_permissions(folder.path().join("model"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::create_dir(folder.path().join("temporary")).unwrap();
        let [old, new, expired, named] = [(); 4].map(|()| free_port());
        let servers = [
            server(&prefix, old, "right", "TLSv1.2"),
            server(&prefix, new, "right", "TLSv1.3"),
            server(&prefix, expired, "expired", "TLSv1.3"),
            server(&prefix, named, "named", "TLSv1.2 TLSv1.3"),
        ];
        let settings = format!("{prefix}/nginx.conf");
        fs::write(&settings, nginx_settings(&prefix, &servers.concat())).unwrap();
        let mut guard =
            Guard::start(folder, &[&program, "-e", "stderr", "-p", &prefix, "-c", &settings], &[]);
        guard.wait_for("nginx", |_| std::net::TcpStream::connect(("127.0.0.1", named)).ok());
        Nginx { guard, body, old, new, expired, named }
    }

    /// What its certificates are signed by.
    fn bundle(&self) -> String {
        self.guard.folder().join("ca.pem").to_str().unwrap().to_owned()
    }

    /// Protocol, cipher and `r` for a resumed session, of each request to that port so far.
    fn log(&self, port: u16) -> Vec<String> {
        fs::read_to_string(self.guard.folder().join(format!("{port}.log")))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

fn write_identity(folder: &Path, name: &str, identity: &Identity) {
    fs::write(folder.join(format!("{name}.pem")), &identity.certificate).unwrap();
    fs::write(folder.join(format!("{name}.key")), &identity.key).unwrap();
}

/// Every connection carries two requests, so that a fetch needs several.
fn server(prefix: &str, port: u16, identity: &str, protocols: &str) -> String {
    format!(
        "    server {{
        listen 127.0.0.1:{port} ssl; root {prefix}; keepalive_requests 2;
        access_log {prefix}/{port}.log tls;
        ssl_certificate {prefix}/{identity}.pem; ssl_certificate_key {prefix}/{identity}.key;
        ssl_protocols {protocols}; ssl_session_cache shared:tls{port}:1m;
    }}
"
    )
}

fn nginx_settings(prefix: &str, servers: &str) -> String {
    format!(
        "daemon off; master_process off; pid {prefix}/pid; error_log stderr warn;
events {{ worker_connections 1024; }}
http {{
    log_format tls '$ssl_protocol $ssl_cipher $ssl_session_reused';
    default_type application/octet-stream; sendfile on; tcp_nopush on;
    client_body_temp_path {prefix}/temporary; proxy_temp_path {prefix}/temporary;
    fastcgi_temp_path {prefix}/temporary; uwsgi_temp_path {prefix}/temporary; scgi_temp_path {prefix}/temporary;
{servers}}}
"
    )
}

/// The whole file arrives over this version, sessions are resumed, and AES-GCM is agreed upon where the CPU
/// has it.
#[track_caller]
fn check(port: u16, protocol: &str) {
    let nginx = &*SHARED;
    let folder = Folder::new();
    let (url, target) = (format!("https://127.0.0.1:{port}/model"), folder.at("model"));
    let bundle = nginx.bundle();
    let arguments = ["cp", &url, &target, "--ca-bundle", &bundle, "--part-size", "256KiB", "--parallel", "2"];
    run(&mut flatout(&arguments)).clean();
    assert!(fs::read(&target).unwrap() == nginx.body, "other bytes");
    let log = nginx.log(port);
    assert!(log.len() >= 22, "{log:?}");
    assert!(log.iter().all(|line| line.starts_with(protocol)), "{log:?}");
    let full = log.iter().filter(|line| line.ends_with(" .")).count();
    let resumed = log.iter().filter(|line| line.ends_with(" r")).count();
    assert!(full <= 2 * 2 && resumed >= 18, "{full} full, {resumed} resumed: {log:?}");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("aes") {
        let first = ["TLS_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"];
        assert!(log.iter().all(|line| first.iter().any(|suite| line.contains(suite))), "{log:?}");
    }
}

#[test]
fn nginx_over_tls_1_2_and_1_3_with_sessions_resumed() {
    check(SHARED.old, "TLSv1.2");
    check(SHARED.new, "TLSv1.3");
}

#[test]
fn certificates_of_nginx_that_do_not_fit() {
    let nginx = &*SHARED;
    let (right, stranger) = (nginx.bundle(), Authority::new());
    let resolve = format!("origin.test:{}:127.0.0.1", nginx.named);
    let at = |host: &str, port: u16| format!("https://{host}:{port}/model");
    for (url, more, says) in [
        (at("127.0.0.1", nginx.named), &[][..], &["signed by nobody", "--ca-bundle"][..]),
        (at("127.0.0.1", nginx.named), &["--ca-bundle", &stranger.bundle()], &["signed by nobody"]),
        (at("127.0.0.1", nginx.expired), &["--ca-bundle", &right], &["expired", "days ago"]),
        (
            at("127.0.0.1", nginx.named),
            &["--ca-bundle", &right],
            &["is for origin.test", "not for 127.0.0.1"],
        ),
    ] {
        run(&mut flatout(&[&["cat", &url], more].concat())).refused(1, says);
        run(&mut flatout(&[&["stat", &url], more].concat())).refused(1, says);
    }
    let url = at("origin.test", nginx.named);
    let ended = run(&mut flatout(&["cat", &url, "--ca-bundle", &right, "--resolve", &resolve])).clean();
    assert!(ended.stdout == nginx.body, "other bytes");
    let plain = format!("http://127.0.0.1:{}/model", nginx.named);
    run(&mut flatout(&["cat", &plain])).refused(4, &["speaks TLS, not plain HTTP", "use https://"]);
}

#[test]
fn minio_over_tls() {
    let program = installed("MinIO", &[crate::minio::cache().join("bin/minio")]);
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let identity = authority.identity(&["127.0.0.1", "localhost"], NOW);
    let certificates = folder.path().join("certificates");
    fs::create_dir(&certificates).unwrap();
    fs::write(certificates.join("public.crt"), &identity.certificate).unwrap();
    fs::write(certificates.join("private.key"), &identity.key).unwrap();
    let (address, console) = (format!("127.0.0.1:{}", free_port()), format!("127.0.0.1:{}", free_port()));
    let (store, certificates) = (folder.path().join("store"), certificates.to_str().unwrap().to_owned());
    let mut command = vec![program.as_str(), "server", "--address", &address, "--console-address", &console];
    command.extend(["--certs-dir", &certificates, store.to_str().unwrap()]);
    let variables = [
        ("MINIO_ROOT_USER", ACCESS_KEY),
        ("MINIO_ROOT_PASSWORD", SECRET_KEY),
        ("MINIO_BROWSER", "off"),
        ("MINIO_UPDATE", "off"),
    ];
    let command = command.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut guard = Guard::start(folder, &command, &variables);
    let (url, bundle) = (format!("https://{address}"), authority.bundle());
    let health = format!("{url}/minio/health/ready");
    guard.wait_for("MinIO", |_| curl(&bundle, &["--fail", &health]).status.success().then_some(()));

    let body = bytes(20_000_003);
    let signed = ["--fail-with-body", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user"];
    let keys = format!("{ACCESS_KEY}:{SECRET_KEY}");
    let put = |target: &str, file: Option<&str>| {
        let (url, file) = (format!("{url}{target}"), file.map(|file| ["--upload-file", file]));
        let more: Vec<&str> = match &file {
            Some(file) => file.to_vec(),
            None => vec!["--request", "PUT"],
        };
        let output = curl(&bundle, &[&signed[..], &[&keys], &more, &[&url]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    };
    let local = Folder::new();
    fs::write(local.at("upload"), &body).unwrap();
    put("/bucket", None);
    put("/bucket/folder/model", Some(&local.at("upload")));

    let flatout = |arguments: &[&str]| {
        let origin = ["--endpoint-url", &url, "--ca-bundle", &bundle];
        let mut command = flatout(&[arguments, &origin].concat());
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        command
    };
    let target = local.at("model");
    run(&mut flatout(&["cp", "s3://bucket/folder/model", &target])).clean();
    assert!(fs::read(&target).unwrap() == body, "other bytes");
    let (source, sent) = (local.at("upload"), "s3://bucket/folder/sent");
    run(&mut flatout(&["cp", &source, sent, "--part-size", "5MiB", "--parallel", "3"])).clean();
    assert!(run(&mut flatout(&["cat", sent])).clean().stdout == body, "other bytes were sent");
    let listed = run(&mut flatout(&["ls", "-r", "s3://bucket/"])).clean();
    assert!(listed.text().contains("folder/model"), "{}", listed.text());
    let stat = run(&mut flatout(&["stat", "s3://bucket/folder/model", "--json"])).clean();
    assert_eq!(stat.events()[0]["bytes"], 20_000_003);
    // Go's servers say it in their own words.
    let plain = url.replace("https://", "http://");
    run(&mut crate::flatout(&["cat", &format!("{plain}/bucket/folder/model")]))
        .refused(4, &["speaks TLS, not plain HTTP", "use https://"]);
}

/// curl with what this authority signed.
fn curl(authority: &str, arguments: &[&str]) -> Output {
    Command::new(installed("curl", &on_path("curl")))
        .args(["--silent", "--show-error", "--max-time", "60", "--cacert", authority])
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn curl_reads_and_writes_what_serve_has_over_tls() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("ca.pem").to_str().unwrap().to_owned();
    let program = env!("CARGO_BIN_EXE_flatout");
    let command = [program, "serve", "--memory", "--no-auth", "--listen", "127.0.0.1:0", "--tls", &bundle];
    let mut guard = Guard::start(folder, &command, &[]);
    let url = guard.wait_for("flatout serve", |guard| {
        let log = guard.log();
        Some(log.lines().next()?.strip_prefix("listening on ")?.to_owned()).filter(|_| log.ends_with('\n'))
    });
    let local = Folder::new();
    let body = bytes(5_000_003);
    fs::write(local.at("upload"), &body).unwrap();
    let (bucket, object) = (format!("{url}/bucket"), format!("{url}/bucket/key"));
    assert!(curl(&bundle, &["--fail", "--request", "PUT", &bucket]).status.success());
    let (upload, download) = (local.at("upload"), local.at("download"));
    assert!(curl(&bundle, &["--fail", "--upload-file", &upload, &object]).status.success());
    for version in [&["--tlsv1.3"][..], &["--tlsv1.2", "--tls-max", "1.2"]] {
        let output = curl(&bundle, &[version, &["--fail", "--output", &download, &object]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(fs::read(&download).unwrap() == body, "{version:?}: other bytes");
    }
    // By name as well as by address; and not without the authority (60: the certificate is not trusted).
    let named = object.replace("127.0.0.1", "localhost");
    assert!(curl(&bundle, &["--fail", "--output", "/dev/null", &named]).status.success());
    let stranger = Authority::new();
    assert_eq!(curl(&stranger.bundle(), &[&object]).status.code(), Some(60));
}
