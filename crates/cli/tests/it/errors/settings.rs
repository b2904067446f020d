//! Settings that are wrong, wherever they stand.

use super::snapshot::{Case, Snapshot};

pub fn all(snapshot: &mut Snapshot) {
    flags(snapshot);
    variables(snapshot);
    files(snapshot);
}

fn flags(snapshot: &mut Snapshot) {
    snapshot.section("Settings on the command line");
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem").to_str().unwrap().to_owned();
    std::fs::write(&empty, "no certificate").unwrap();
    for setting in [
        &["--part-size", "8 bananas"][..],
        &["--part-size", "0"],
        &["--part-size", "8GiB"],
        &["--parallel", "many"],
        &["--parallel", "0"],
        &["--shards", "1000"],
        &["--window", "1MiB", "--part-size", "8MiB"],
        &["--window", "1GiB", "--memory", "512MiB"],
        &["--memory", "1MiB"],
        &["--memory", "16MiB", "--parallel", "1000"],
        &["--stall-timeout", "20"],
        &["--connect-timeout", "0s"],
        &["--retries", "-1"],
        &["--addressing", "paths"],
        &["--oss-signature", "v2"],
        &["--endpoint-url", "ftp://host"],
        &["--endpoint-url", "localhost:9000"],
        &["--region", "eu west"],
        &["--resolve", "host"],
        &["--resolve", "host:9000:name"],
        &["--bind", "192.0.2.7"],
        &["--proxy", "socks5://user:hunter2hunter2@proxy:1080"],
        &["--ca-bundle", "/nowhere/ca.pem"],
        &["--ca-bundle", &empty],
        &["--profile", "minoi"],
    ] {
        snapshot.line(&[&["stat", "s3://bucket/key"], setting].concat());
    }
    snapshot.line(&[
        "stat",
        "oss://bucket/key",
        "--oss-endpoint",
        "https://bucket.oss-cn-hangzhou.aliyuncs.com",
    ]);
    snapshot.line(&["stat", "oss://bucket/key", "--oss-region", "cn hangzhou"]);
}

fn variables(snapshot: &mut Snapshot) {
    snapshot.section("Settings in the environment");
    for (name, value) in [
        ("FLATOUT_PARALLEL", "lots"),
        ("FLATOUT_PARALEL", "3"),
        ("FLATOUT_NO_VERIFY", "maybe"),
        ("FLATOUT_PROFILE", "minoi"),
        ("FLATOUT_CONFIG", "/nowhere/config.toml"),
        ("AWS_ENDPOINT_URL", "minio:9000"),
        ("AWS_REGION", "eu west"),
        ("AWS_CA_BUNDLE", "/nowhere/ca.pem"),
        ("HTTPS_PROXY", "socks5://user:hunter2hunter2@proxy:1080"),
        ("OSS_ENDPOINT", "ftp://oss"),
    ] {
        let url = if name.starts_with("OSS") { "oss://bucket/key" } else { "s3://bucket/key" };
        snapshot.run(Case::new(&["stat", url]).env(name, value));
    }
    snapshot.run(Case::new(&["doctor"]).env("FLATOUT_PARALEL", "3"));
    snapshot.text += "\n(they are what a bug report is about: it has them in its own rows)\n";
    snapshot.run(Case::new(&["version", "--verbose"]).env("FLATOUT_PARALEL", "3"));
}

fn files(snapshot: &mut Snapshot) {
    snapshot.section("Settings in files (~ holds the one that each heading names)");
    for (path, text) in [
        (".config/flatout/config.toml", "partsize = 1"),
        (".config/flatout/config.toml", "parallel = 'many'"),
        (".config/flatout/config.toml", "parallel = [1, 2]"),
        (".config/flatout/config.toml", "region = \"eu"),
        (".config/flatout/config.toml", "secret-key = 'hunter2hunter2'"),
        (".config/flatout/config.toml", "window = '1MiB'\npart-size = '8MiB'"),
        (".config/flatout/config.toml", "[profile.minio]\nparalel = 3"),
        (".config/flatout/config.toml", "[profiles.minio]\nparallel = 3"),
        (".aws/config", "[default]\nendpoint_url = minio:9000\n"),
        (".aws/config", "region = eu-west-1\n"),
        (".aliyun/config.json", "{"),
        (".config/flatout/config.toml", "oss-endpoint = 'ftp://oss'"),
        (".config/flatout/config.toml", "oss-region = 'cn hangzhou'"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        snapshot.text += &format!("\n~/{path}: {}\n", text.trim_end().replace('\n', " / "));
        let line = match text.starts_with("oss-") {
            true => &["stat", "oss://bucket/key"][..],
            false => &["stat", "s3://bucket/key", "--endpoint-url", "http://127.0.0.1:1", "--retries", "0"],
        };
        snapshot.run(Case::new(line).home(home.path()));
    }
}
