//! What volumes say of themselves, and what is made of it.

use super::*;
use crate::volume::VolumeIndex;

fn request(attributes: &[(&str, &str)]) -> VolumeRequest {
    let attributes = attributes.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    VolumeRequest { attributes, ..VolumeRequest::default() }
}

fn with_secret(attributes: &[(&str, &str)], secrets: &[(&str, &str)]) -> VolumeRequest {
    let secrets = secrets.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    VolumeRequest { secrets, ..request(attributes) }
}

#[track_caller]
fn read_of(request: &VolumeRequest) -> ReadVolume {
    read(request, &Cluster::default()).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn knob<'a>(read: &'a ReadVolume, name: &str) -> Option<&'a str> {
    read.volume.knobs.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// The PV of the seed, with nothing but the driver's name changed.
#[test]
fn a_volume_of_ack_is_read() {
    let attributes = [
        ("fuseType", "ossfs2"),
        ("bucket", "cnfs-oss-test"),
        ("path", "/subpath"),
        ("url", "oss-cn-hangzhou-internal.aliyuncs.com"),
        ("otherOpts", "-o close_to_open=false"),
        ("csi.storage.k8s.io/pod.namespace", "default"),
        ("csi.storage.k8s.io/serviceAccount.name", "trainer"),
    ];
    let secrets = [("akId", "LTAI"), ("akSecret", "SECRET")];
    let read = read_of(&VolumeRequest { readers_only: true, ..with_secret(&attributes, &secrets) });
    assert_eq!(read.volume.source, "oss://cnfs-oss-test/subpath/");
    assert_eq!(knob(&read, "oss-endpoint"), Some("http://oss-cn-hangzhou-internal.aliyuncs.com"));
    assert_eq!(knob(&read, "close-to-open"), Some("false"));
    assert_eq!((knob(&read, "uid"), knob(&read, "read-only")), (Some("0"), Some("true")));
    assert!(read.volume.read_only);
    assert_eq!(read.volume.identity, Identity::Secret);
    assert_eq!(read.secrets.keys.map(|keys| (keys.id, keys.secret)), Some(("LTAI".into(), "SECRET".into())));
    assert_eq!(read.pod.subject(), "default/trainer");
}

#[test]
fn a_volume_of_mountpoints_driver_is_read() {
    let mount_options = ["allow-delete", "region us-west-2", "uid=1000"];
    let mut wanted = request(&[("bucketName", "models")]);
    wanted.mount_options = mount_options.map(str::to_owned).to_vec();
    let read = read_of(&wanted);
    assert_eq!(read.volume.source, "s3://models");
    assert_eq!((knob(&read, "region"), knob(&read, "uid")), (Some("us-west-2"), Some("1000")));
    assert_eq!(read.volume.identity, Identity::Driver);
    let tokens = r#"{"sts.amazonaws.com":{"token":"T","expirationTimestamp":"2026-11-29T00:00:00Z"}}"#;
    let pod = [
        ("bucketName", "models"),
        ("authenticationSource", "pod"),
        ("stsRegion", "us-east-1"),
        ("csi.storage.k8s.io/serviceAccount.tokens", tokens),
    ];
    let read = read_of(&request(&pod));
    assert_eq!(read.volume.identity, Identity::EksPod);
    assert_eq!(read.secrets.tokens["sts.amazonaws.com"], "T");
    let with_role = [&pod[..], &[("roleArn", "arn:aws:iam::1:role/reader")]].concat();
    let identity = read_of(&request(&with_role)).volume.identity;
    let region = Some("us-east-1".to_owned());
    let role = "arn:aws:iam::1:role/reader".to_owned();
    assert_eq!(identity, Identity::Irsa { role, region, token: TokenOf::Workload });
}

#[test]
fn endpoints_are_completed_as_ack_does() {
    let check = |url: &str, want: &str| {
        let read = read_of(&request(&[("bucket", "b"), ("url", url)]));
        assert_eq!(knob(&read, "oss-endpoint"), Some(want));
    };
    check("oss-cn-hangzhou.aliyuncs.com", "https://oss-cn-hangzhou.aliyuncs.com");
    check("oss-cn-hangzhou-internal.aliyuncs.com", "http://oss-cn-hangzhou-internal.aliyuncs.com");
    check("http://127.0.0.1:9000", "http://127.0.0.1:9000");
}

#[test]
fn places_are_bucket_and_folder() {
    let check = |attributes: &[(&str, &str)], want: &str| {
        assert_eq!(read_of(&request(attributes)).volume.source, want, "{attributes:?}");
    };
    check(&[("bucket", "b")], "oss://b");
    check(&[("BUCKET", " b "), ("Path", "/")], "oss://b");
    check(&[("bucket", "b"), ("path", "/a//b/")], "oss://b/a//b/");
    check(&[("source", "s3://b/x"), ("path", "y")], "s3://b/x/y/");
}

#[test]
fn roles_are_read() {
    let check = |more: &[(&str, &str)], want: Result<Identity, &str>| {
        let attributes = [&[("bucket", "b"), ("authType", "rrsa")], more].concat();
        let cluster = Cluster {
            alibaba_account: Some("7".into()),
            alibaba_cluster: Some("c1".into()),
            ..Cluster::default()
        };
        let got = read(&request(&attributes), &cluster).map(|read| read.volume.identity);
        match want {
            Ok(want) => assert_eq!(got, Ok(want), "{more:?}"),
            Err(says) => assert!(got.clone().unwrap_err().to_string().contains(says), "{got:?}"),
        }
    };
    let rrsa = |role: &str, provider: &str, then: Option<SecondRole>, token| Identity::Rrsa {
        role: role.into(),
        provider: provider.into(),
        session: None,
        then,
        token,
    };
    check(
        &[("roleName", "reader")],
        Ok(rrsa("acs:ram::7:role/reader", "acs:ram::7:oidc-provider/ack-rrsa-c1", None, TokenOf::Driver)),
    );
    let then = SecondRole { role: "other".into(), external_id: Some("x".into()) };
    check(
        &[
            ("roleArn", "r"),
            ("oidcProviderArn", "p"),
            ("assumeRoleArn", "other"),
            ("externalId", "x"),
            ("authenticationSource", "pod"),
        ],
        Ok(rrsa("r", "p", Some(then), TokenOf::Workload)),
    );
    check(&[], Err("rrsa wants roleArn and oidcProviderArn, or roleName"));
    check(&[("roleArn", "r")], Err("roleArn: oidcProviderArn is wanted with it"));
    check(&[("oidcProviderArn", "p")], Err("oidcProviderArn: roleArn is wanted with it"));
    check(&[("roleName", "r"), ("externalId", "x")], Err("externalId: assumeRoleArn is wanted with it"));
    check(&[("roleName", "r"), ("stsRegion", "x")], Err("stsRegion: has no effect"));
    let unknown =
        read(&request(&[("bucket", "b"), ("authType", "rrsa"), ("roleName", "r")]), &Cluster::default());
    assert!(unknown.unwrap_err().to_string().contains("set alibaba.accountId"));
    let machine = read_of(&request(&[("bucket", "b"), ("authType", "sts"), ("ramRole", "node")]));
    assert_eq!(machine.volume.identity, Identity::Machine { role: "node".into() });
    let public = read_of(&with_secret(
        &[("bucket", "b"), ("authType", "public")],
        &[("akId", "x"), ("akSecret", "y")],
    ));
    assert_eq!(public.volume.identity, Identity::Anonymous);
}

#[test]
fn a_group_may_write_unless_modes_say_otherwise() {
    let grouped = |mut request: VolumeRequest| {
        request.group = "2000".to_owned();
        read_of(&request)
    };
    let read = grouped(request(&[("bucket", "b")]));
    assert_eq!((knob(&read, "gid"), knob(&read, "dir-mode")), (Some("2000"), Some("0770")));
    let read = grouped(request(&[("bucket", "b"), ("otherOpts", "-o gid=5,file_mode=0640")]));
    assert_eq!((knob(&read, "gid"), knob(&read, "file-mode")), (Some("5"), Some("0640")));
}

#[test]
fn memory_is_the_volumes_own_share() {
    let read = read_of(&request(&[("bucket", "b"), ("memory", "1GiB"), ("isolation", "pod")]));
    assert_eq!(
        (read.memory_bytes, knob(&read, "memory"), read.volume.is_isolated),
        (Some(1 << 30), None, true)
    );
    let read = read_of(&request(&[("bucket", "b"), ("otherOpts", "-o total_mem_limit=1073741824")]));
    assert_eq!(read.memory_bytes, Some(1 << 30));
}

#[test]
fn what_means_nothing_is_refused_by_name() {
    let check = |attributes: &[(&str, &str)], says: &str| {
        let error = read(&request(attributes), &Cluster::default()).map(drop).unwrap_err().to_string();
        assert!(error.contains(says), "{attributes:?}: {error}");
    };
    check(&[], "no bucket is named");
    check(&[("bucket", "b"), ("bucketName", "b")], "write one of source, bucket and bucketName");
    check(&[("bucket", "b/x")], "its folder belongs into path");
    check(&[("bucket", "b"), ("BUCKET", "c")], "contradicts");
    check(&[("bucket", "b"), ("buckte", "b")], "buckte: is no attribute of a volume: did you mean bucket?");
    check(&[("bucket", "b"), ("url", "b.oss-cn-hangzhou.aliyuncs.com")], "is the address of a bucket");
    check(&[("bucket", "b"), ("fuseType", "s3fs")], "fuseType: 's3fs' is none of");
    check(&[("bucket", "b"), ("otherOpts", "ro")], "otherOpts: 'ro' is no option: write -o NAME");
    check(&[("bucket", "b"), ("otherOpts", "-o")], "otherOpts: '-o' is no option");
    check(&[("bucket", "b"), ("otherOpts", "-o frobnicate")], "-o frobnicate: is no option");
    check(&[("bucket", "b"), ("otherOpts", "-o log=/x")], "log: is of the driver");
    check(&[("bucket", "b"), ("sigVersion", "v2")], "sigVersion: 'v2' is neither v1 nor v4");
    check(&[("bucket", "b"), ("encrypted", "kms")], "encrypted: the bucket's own encryption decides");
    check(&[("bucket", "b"), ("dnsPolicy", "Default")], "dnsPolicy: there is no pod for each volume");
    check(&[("bucket", "b"), ("parallel", "x")], "parallel");
    check(&[("bucket", "b"), ("isolation", "node")], "isolation: 'node' is neither shared nor pod");
    check(&[("bucket", "b"), ("authType", "magic")], "authType: 'magic' is none of");
    check(&[("bucket", "b"), ("akId", "x")], "akId and akSecret are wanted together");
    check(&[("bucket", "b"), ("roleName", "x"), ("akId", "x"), ("akSecret", "y")], "roleName: has no effect");
}

#[test]
fn halves_of_pairs_are_refused() {
    let half = read(&with_secret(&[("bucket", "b")], &[("akSecret", "HIDDEN")]), &Cluster::default());
    let error = half.map(drop).unwrap_err().to_string();
    assert_eq!(error, "Secret: it has akSecret and no akId");
}

/// What a user sees whose volume cannot be served says where to look and what to write.
#[test]
fn what_would_be_overlooked_is_refused() {
    let check = |request: VolumeRequest, says: &str| {
        let error = read(&request, &Cluster::default()).map(drop).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    check(
        with_secret(&[("bucket", "b")], &[("accessKey", "x"), ("secretKey", "HIDDEN")]),
        "Secret: it has accessKey, secretKey, and no keys under names that are known: write akId and akSecret",
    );
    let keys = [("akId", "x"), ("akSecret", "y")];
    check(
        with_secret(&[("source", "s3://b"), ("authenticationSource", "pod")], &keys),
        "authenticationSource: pod contradicts the keys of the Secret",
    );
    check(
        request(&[("bucket", "b"), ("authenticationSource", "pod"), ("authType", "sts")]),
        "pod contradicts authType: sts",
    );
    check(request(&[("source", "s3://b"), ("authType", "rrsa")]), "authType: rrsa is of OSS");
    check(
        request(&[("bucket", "b"), ("authType", "rrsa"), ("roleName", "acs:ram::1:role/x")]),
        "roleName: 'acs:ram::1:role/x' is an ARN",
    );
    check(
        request(&[("bucket", "b"), ("authenticationSource", "pod")]),
        "authenticationSource: the pod's service account names no role",
    );
    check(request(&[("bucket", "b"), ("secretRef", "x")]), "secretRef: name a Secret: nodePublishSecretRef");
    check(request(&[("bucket", "b"), ("profile", "x")]), "profile: an engine has no profiles");
    check(request(&[("bucket", "b"), ("allow-other", "false")]), "allow-other: a pod's user");
    check(request(&[("bucket", "b"), ("memory", "1")]), "memory: 1");
    check(
        request(&[("bucket", "b"), ("csi.storage.k8s.io/node-publish-secret-name", "x")]),
        "a PersistentVolume names nodePublishSecretRef",
    );
    for (options, says) in [
        ("-o log_level=debug", "otherOpts: -o log_level: is of the driver, and not of a volume"),
        ("-o passwd_file=/x", "otherOpts: -o passwd_file: keys come from a Secret"),
        ("-o ram_role=x", "otherOpts: -o ram_role: write roleName among volumeAttributes"),
        ("-o profile=x", "otherOpts: -o profile: an engine has no profiles"),
    ] {
        check(request(&[("bucket", "b"), ("otherOpts", options)]), says);
    }
    let mut wanted = request(&[("bucket", "b")]);
    wanted.mount_options = vec!["frobnicate".to_owned()];
    check(wanted, "mountOptions: -o frobnicate: is no option");
    // An empty value is none.
    read_of(&request(&[("bucket", "b"), ("direct", ""), ("parallel", ""), ("isolation", "Shared")]));
}

#[test]
fn mountpoints_prefix_is_a_folder() {
    let with = |attributes: &[(&str, &str)]| {
        let mut wanted = request(attributes);
        wanted.mount_options = vec!["prefix a/b/".to_owned(), "metadata-ttl indefinite".to_owned()];
        read(&wanted, &Cluster::default())
    };
    let of_prefix = with(&[("bucketName", "models")]).unwrap();
    assert_eq!(of_prefix.volume.source, "s3://models/a/b/");
    assert_eq!(knob(&of_prefix, "attribute-lifetime"), Some("31536000s"));
    let twice = with(&[("bucketName", "models"), ("path", "c")]).map(drop).unwrap_err().to_string();
    assert!(twice.contains("path: 'c' contradicts mountOptions: prefix a/b/"), "{twice}");
    let of_oss = with(&[("bucket", "b")]).map(drop).unwrap_err().to_string();
    assert!(of_oss.contains("-o prefix: write path among volumeAttributes"), "{of_oss}");
}

#[test]
fn every_row_of_the_tables_can_be_found() {
    let mut names: Vec<String> = table::names().map(str::to_ascii_lowercase).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "a name stands twice");
    for key in table::TABLES.iter().flat_map(|table| table.keys) {
        assert_eq!(table::find(&key.name.to_uppercase()).unwrap().name, key.name);
        // A name of ours would hide a knob.
        assert!(knob_of(key.name).is_none_or(|knob| knob.name == "region"), "{}", key.name);
        if let Meaning::Is(_, why) | Meaning::Refused(why) = key.meaning {
            assert!(!why.ends_with('.') && !why.contains('\n'), "{}", key.name);
        }
    }
}

#[test]
fn tokens_are_of_the_secret_first() {
    let of = |token: &str| format!(r#"{{"sts.aliyuncs.com":{{"token":"{token}"}}}}"#);
    let name = "csi.storage.k8s.io/serviceAccount.tokens";
    let both = with_secret(&[("bucket", "b"), (name, &of("old"))], &[(name, &of("new"))]);
    assert_eq!(read_of(&both).secrets.tokens["sts.aliyuncs.com"], "new");
    let broken = request(&[("bucket", "b"), (name, "{\"sts\": 7 HIDDEN")]);
    let error = read(&broken, &Cluster::default()).map(drop).unwrap_err().to_string();
    assert!(!error.contains("HIDDEN") && error.contains("no list of tokens"), "{error}");
}

#[test]
fn a_service_account_may_name_the_role() {
    let of_pod = |source: &str, more: &[(&str, &str)]| {
        let account = [
            ("csi.storage.k8s.io/pod.namespace", "team"),
            ("csi.storage.k8s.io/serviceAccount.name", "trainer"),
        ];
        request(&[&[("source", source), ("authenticationSource", "pod")], &account[..], more].concat())
    };
    let of_account = [
        ("eks.amazonaws.com/role-arn", "arn:aws:iam::1:role/reader"),
        ("pod-identity.alibabacloud.com/role-name", "reader"),
    ];
    let of_account: BTreeMap<String, String> =
        of_account.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    assert_eq!(needs_account(&of_pod("s3://b", &[])), Some(("team".into(), "trainer".into())));
    assert_eq!(needs_account(&of_pod("s3://b", &[("roleArn", "r")])), None);
    assert_eq!(needs_account(&request(&[("source", "s3://b")])), None);
    let with = |request: VolumeRequest| {
        let cluster = Cluster {
            alibaba_account: Some("7".into()),
            alibaba_cluster: Some("c1".into()),
            ..Cluster::default()
        };
        let request = VolumeRequest { of_account: of_account.clone(), ..request };
        read(&request, &cluster).unwrap().volume.identity
    };
    let region = Some("eu-central-1".to_owned());
    let irsa = |role: &str, region| Identity::Irsa { role: role.into(), region, token: TokenOf::Workload };
    assert_eq!(
        with(of_pod("s3://b", &[("stsRegion", "eu-central-1")])),
        irsa("arn:aws:iam::1:role/reader", region)
    );
    // What a volume says itself counts more.
    assert_eq!(with(of_pod("s3://b", &[("roleArn", "r")])), irsa("r", None));
    let rrsa = with(of_pod("oss://b", &[]));
    assert!(
        matches!(&rrsa, Identity::Rrsa { role, token: TokenOf::Workload, .. } if role == "acs:ram::7:role/reader")
    );
    // A service account that names none: EKS Pod Identity may know it.
    assert_eq!(read_of(&of_pod("s3://b", &[])).volume.identity, Identity::EksPod);
}

#[test]
fn who_creates_a_pod_uses_no_keys_of_the_driver() {
    let inline = |more: &[(&str, &str)]| {
        request(&[&[("source", "s3://b"), ("csi.storage.k8s.io/ephemeral", "true")], more].concat())
    };
    let refused = |more: &[(&str, &str)], why: &str| {
        let error = read(&inline(more), &Cluster::default()).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(&[], "an inline volume brings keys of its own");
    refused(&[("roleArn", "arn:aws:iam::1:role/admin")], "an inline volume brings keys of its own");
    refused(&[("authType", "sts"), ("roleName", "node")], "an inline volume brings keys of its own");
    refused(&[("authType", "public"), ("otherOpts", "-o suid")], "suid is for volumes of an administrator");
    assert_eq!(read_of(&inline(&[("authType", "public")])).volume.identity, Identity::Anonymous);
    let of_pod = read_of(&inline(&[("authenticationSource", "pod"), ("roleArn", "r")]));
    assert!(of_pod.volume.identity.is_of_workload());
    let allowed = Cluster { inline_driver_keys: true, ..Cluster::default() };
    assert_eq!(read(&inline(&[]), &allowed).unwrap().volume.identity, Identity::Driver);
}

#[test]
fn keys_that_contradict_each_other_are_not_shown() {
    let twice = request(&[("bucket", "b"), ("akSecret", "VISIBLE"), ("AKSECRET", "VISIBLE2"), ("akId", "x")]);
    let error = read(&twice, &Cluster::default()).unwrap_err().to_string();
    assert!(error.contains("contradicts") && !error.contains("VISIBLE"), "{error}");
}

#[test]
fn a_volume_of_an_index_is_read_only_and_says_where_its_index_comes_from() {
    let base = [("source", "s3://data/train"), ("kind", "index")];
    let readers = |more: &[(&str, &str)]| VolumeRequest {
        is_read_only: true,
        ..request(&[base.as_slice(), more].concat())
    };
    let read = read_of(&readers(&[]));
    assert_eq!(read.volume.index, Some(VolumeIndex::Listed));
    assert!(read.volume.read_only);
    assert_eq!(knob(&read, "read-only"), Some("true"));
    // Whatever makes it read only makes the same volume.
    let of_mode = read_of(&VolumeRequest { readers_only: true, ..request(&base) });
    let of_option = read_of(&VolumeRequest { mount_options: vec!["ro".into()], ..request(&base) });
    assert_eq!(of_mode.volume.key("a", None), read.volume.key("a", None));
    assert!(of_option.volume.read_only);
    for (typed, url) in [
        ("indexes/train.flat", "s3://data/indexes/train.flat"),
        ("/train.flat", "s3://data/train.flat"),
        ("s3://other/train.flat", "s3://other/train.flat"),
    ] {
        let read = read_of(&readers(&[("index", typed)]));
        assert_eq!(read.volume.index, Some(VolumeIndex::Object(url.into())), "{typed}");
    }
    assert_eq!(read_of(&request(&[("source", "s3://data"), ("kind", "bucket")])).volume.index, None);
}

#[test]
fn a_volume_of_an_index_that_cannot_be_is_refused() {
    let base = [("source", "s3://data/train"), ("kind", "index")];
    let readers = |more: &[(&str, &str)]| VolumeRequest {
        is_read_only: true,
        ..request(&[base.as_slice(), more].concat())
    };
    let check = |request: VolumeRequest, says: &str| {
        let error = read(&request, &Cluster::default()).unwrap_err().to_string();
        assert!(error.contains(says), "{says}: {error}");
    };
    check(request(&base), "kind: an index is read only: write accessModes: [ReadOnlyMany]");
    check(readers(&[("index", "oss://data/i")]), "index: 'oss://data/i' is not of the service");
    check(readers(&[("index", "s3://data")]), "index: 's3://data' is no object");
    check(readers(&[("index", "indexes/")]), "index: 'indexes/' is no object");
    check(readers(&[("index", "http://host/i")]), "index: 'http://host/i' is no");
    check(request(&[("source", "s3://data"), ("index", "i")]), "index: write kind: index with it");
    check(request(&[("source", "s3://data"), ("kind", "dir")]), "kind: 'dir' is neither bucket nor index");
    check(VolumeRequest { mount_options: vec!["suid".into()], ..readers(&[]) }, "suid");
    let inline = [("csi.storage.k8s.io/ephemeral", "true"), ("authType", "public"), ("index", "i")];
    check(readers(&inline), "index: is for volumes of an administrator");
    assert_eq!(read_of(&readers(&inline[..2])).volume.index, Some(VolumeIndex::Listed));
}
