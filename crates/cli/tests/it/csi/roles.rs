//! Volumes with keys of roles: whose token the service sees, and how often it is asked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::json;
use tonic::Code;

use super::kubernetes::Kubernetes;
use super::service::{Service, ServiceReply, ServiceRequest};
use super::{Node, Wanted, text};
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY};
use crate::program::wait_until;

/// The time that many seconds from now, in ISO 8601.
fn within(seconds: u32) -> String {
    let end = Command::new("date").args(["-u", "-d", &format!("+{seconds} seconds"), "+%FT%TZ"]).output();
    String::from_utf8(end.unwrap().stdout).unwrap().trim().to_owned()
}

/// An STS of AWS that grants the origin's keys for every request.
fn sts() -> Service {
    Service::start(|_| {
        let keys = format!(
            "<AccessKeyId>{ACCESS_KEY}</AccessKeyId><SecretAccessKey>{SECRET_KEY}</SecretAccessKey>\
             <SessionToken>session</SessionToken><Expiration>{}</Expiration>",
            within(3600)
        );
        ServiceReply::This(
            200,
            format!(
                "<R><AssumeRoleWithWebIdentityResult><Credentials>{keys}</Credentials>\
                 </AssumeRoleWithWebIdentityResult></R>"
            ),
        )
    })
}

fn fields(asked: &ServiceRequest) -> [Option<String>; 3] {
    ["Action", "RoleArn", "WebIdentityToken"].map(|name| asked.field(name))
}

/// Of a pod's service account, as kubelet hands them over.
fn tokens(wanted: Wanted, audience: &str, token: &str) -> Wanted {
    let list = json!({ audience: {"token": token, "expirationTimestamp": within(3600)} });
    wanted.with("csi.storage.k8s.io/serviceAccount.tokens", &list.to_string())
}

fn anonymous(mut wanted: Wanted) -> Wanted {
    wanted.attributes.remove("no-sign-request");
    wanted
}

#[test]
fn a_role_is_asked_for_once_for_all_volumes_of_an_account() {
    let (origin, sts) = (Buckets::locked(&[("bucket/f", b"content")]), sts());
    let mut node = Node::stopped();
    let cluster = Kubernetes::new(text(&node.path("shared/driver/engine")));
    cluster.put(
        "/api/v1/namespaces/default/serviceaccounts/default",
        json!({"metadata": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/of-account"}}}),
    );
    node.environment = cluster.environment();
    node.environment.push(("AWS_ENDPOINT_URL_STS".to_owned(), sts.url()));
    node.plugin_options = vec!["--service-account".to_owned(), cluster.account().to_owned()];
    node.start_plugin();
    node.start_engine();
    let volume = |id: &str, token: &str| {
        let base = anonymous(Wanted::of("s3://bucket", &origin.url())).with("authenticationSource", "pod");
        let base = base.with("stsRegion", "eu-central-1").with("attribute-lifetime", "0s");
        tokens(Wanted { volume_id: id.to_owned(), ..base }, "sts.amazonaws.com", token)
    };
    for id in ["one", "two", "three"] {
        assert_eq!(fs::read(node.published(&volume(id, "t0ken-a")).join("f")).unwrap(), b"content");
    }
    let asked: Vec<_> = sts.asked().iter().map(fields).collect();
    let of = |role: &str, token: &str| {
        ["AssumeRoleWithWebIdentity", role, token].map(|text| Some(text.to_owned()))
    };
    assert_eq!(asked, [of("arn:aws:iam::1:role/of-account", "t0ken-a")], "once for three volumes");
    // Kubelet's next call has another token: it is used, without a remount.
    for id in ["one", "two", "three"] {
        node.published(&volume(id, "t0ken-b"));
    }
    wait_until("the next token is used", || sts.asked().len() > 1);
    thread::sleep(Duration::from_millis(300));
    let asked: Vec<_> = sts.asked().iter().skip(1).map(fields).collect();
    assert_eq!(asked, [of("arn:aws:iam::1:role/of-account", "t0ken-b")]);
    // What the volume says itself counts more than the account.
    let own = volume("four", "t0ken-b").with("roleArn", "arn:aws:iam::1:role/of-volume");
    assert_eq!(fs::read(node.published(&own).join("f")).unwrap(), b"content");
    assert_eq!(fields(sts.asked().last().unwrap()), of("arn:aws:iam::1:role/of-volume", "t0ken-b"));
    for id in ["one", "two", "three", "four"] {
        node.unpublished(&volume(id, "t0ken-b"));
    }
    let log = node.log();
    assert!(!log.contains("t0ken-") && !log.contains(SECRET_KEY), "{log}");
    node.is_clear();
}

#[test]
fn volumes_of_one_role_outlive_the_first_of_them() {
    let origin = Buckets::locked(&[("bucket/f", b"content")]);
    let sts = Service::start(|_| {
        let keys = json!({
            "AccessKeyId": ACCESS_KEY,
            "AccessKeySecret": SECRET_KEY,
            "SecurityToken": "session",
            "Expiration": within(6),
        });
        ServiceReply::This(200, json!({"RequestId": "1", "Credentials": keys}).to_string())
    });
    let mut node = Node::stopped();
    let token = node.path("token");
    fs::write(&token, "t0ken-of-the-driver").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    let environment =
        [("ALIBABA_CLOUD_OIDC_TOKEN_FILE", text(&token)), ("ALIBABA_CLOUD_STS_ENDPOINT", &sts.url())];
    node.environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    node.start_plugin();
    node.start_engine();
    let volume = |id: &str| {
        let base = anonymous(Wanted { volume_id: id.to_owned(), ..Wanted::of("oss://bucket", "") });
        let mut base = base.with("url", &origin.url()).with("fuseType", "ossfs2").with("authType", "rrsa");
        base.attributes.remove("endpoint-url");
        let base = base.with("roleArn", "acs:ram::1:role/reader");
        base.with("oidcProviderArn", "acs:ram::1:oidc-provider/ack").with("attribute-lifetime", "0s")
    };
    let (first, second) = (volume("first"), volume("second"));
    node.published(&first);
    let target = node.published(&second);
    let asked = sts.asked();
    assert_eq!(asked[0].field("RoleArn").as_deref(), Some("acs:ram::1:role/reader"));
    assert_eq!(asked[0].field("OIDCToken").as_deref(), Some("t0ken-of-the-driver"));
    node.unpublished(&first);
    let before = sts.asked().len();
    // The keys of before have ended by then.
    thread::sleep(Duration::from_secs(7));
    assert_eq!(fs::read(target.join("f")).unwrap(), b"content", "{}", node.log());
    assert!(sts.asked().len() > before);
    node.unpublished(&second);
    node.is_clear();
}

/// Nothing is asked of the origin without keys where those of a role were wanted.
#[test]
fn a_role_without_a_token_is_refused() {
    let origin = Buckets::locked(&[("bucket/f", b"content")]);
    let node = Node::new();
    let base = || anonymous(Wanted::of("s3://bucket", &origin.url()));
    let of_driver = node.publish(&base().with("roleArn", "arn:aws:iam::1:role/reader")).unwrap_err();
    assert_eq!(of_driver.code(), Code::InvalidArgument);
    assert!(of_driver.message().contains("install it with aws.irsa=true"), "{of_driver:?}");
    let of_pod = node.publish(&base().with("authenticationSource", "pod")).unwrap_err();
    assert_eq!(of_pod.code(), Code::InvalidArgument);
    assert!(of_pod.message().contains("no token of the pod for pods.eks.amazonaws.com"), "{of_pod:?}");
    node.is_clear();
}

/// What the chart says by `node.readServiceAccounts=false`.
#[test]
fn an_annotation_counts_only_where_accounts_are_read() {
    let (origin, sts) = (Buckets::locked(&[("bucket/f", b"content")]), sts());
    let mut node = Node::stopped();
    let cluster = Kubernetes::new(text(&node.path("shared/driver/engine")));
    cluster.put(
        "/api/v1/namespaces/default/serviceaccounts/default",
        json!({"metadata": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/of-account"}}}),
    );
    node.environment = cluster.environment();
    node.environment.push(("AWS_ENDPOINT_URL_STS".to_owned(), sts.url()));
    let account = cluster.account().to_owned();
    node.plugin_options =
        vec!["--service-account".to_owned(), account, "--ignore-service-accounts".to_owned()];
    node.start_plugin();
    node.start_engine();
    let base = anonymous(Wanted::of("s3://bucket", &origin.url())).with("authenticationSource", "pod");
    let refused = node.publish(&tokens(base, "sts.amazonaws.com", "t0ken")).unwrap_err();
    assert!(refused.message().contains("pods.eks.amazonaws.com"), "{refused:?}");
    assert!(sts.asked().is_empty());
    node.is_clear();
}
