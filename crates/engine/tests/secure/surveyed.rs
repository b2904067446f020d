//! A survey: every address is tried, handshakes are told, no request is sent, and what does not answer ends
//! in time.

use std::net::TcpListener;

use flatout_engine::{Client, Dialect, ErrorKind};
use flatout_wire::range::Span;
use rustls::version::{TLS12, TLS13};

use crate::certificates::{Authority, NOW};
use crate::proxy::{Lets, TestProxy};
use crate::secure_origin::{SecureOrigin, Version, Wire, config};
use crate::{in_time, location, serve_object, settings};

fn secure(authority: &Authority, versions: &[Version]) -> SecureOrigin {
    let identity = authority.identity(&["origin.test"], NOW);
    SecureOrigin::start(config(&identity, versions), Wire::default(), serve_object)
}

#[test]
fn every_address_is_tried_without_a_request() {
    let authority = Authority::new();
    for (versions, version) in [(&[&TLS13][..], "TLS 1.3"), (&[&TLS12], "TLS 1.2")] {
        let origin = secure(&authority, versions);
        let mut config = settings(&authority);
        // Nobody listens on 127.0.0.9: the connect is refused.
        config.settings.resolve = vec!["origin.test:127.0.0.1,127.0.0.9".into()];
        let url = format!("https://origin.test:{}/object", origin.address.port());
        in_time(move || {
            let client = Client::new(config).unwrap();
            let way = client.way(&location(&url)).unwrap();
            assert_eq!((way.proxy.as_ref(), way.nearest().port), (None, origin.address.port()));
            let survey = client.survey(&way, 3).unwrap();
            let [good, dead] = &survey.addresses[..] else { panic!("{survey:?}") };
            assert_eq!((good.address, good.connects_s.len()), (origin.address, 3));
            assert!(good.connects_s.iter().all(|seconds| *seconds > 0.0), "{good:?}");
            let handshake = good.handshake.as_ref().unwrap();
            assert_eq!(handshake.version, version);
            assert!(handshake.cipher.contains("AES") || handshake.cipher.contains("CHACHA"), "{handshake:?}");
            assert!(good.failure.is_none() && dead.connects_s.is_empty() && dead.handshake.is_none());
            assert_eq!(dead.failure.as_ref().unwrap().kind(), ErrorKind::Network);
            assert!(origin.seen.asked.lock().unwrap().is_empty());
            // What an answer says of the time is kept: this origin says nothing.
            let mut buffer = vec![0; 10];
            client.get_into(&location(&url), Span::Slice(0..10), &mut buffer).unwrap();
            assert_eq!(client.origin_ahead_s(), None);
        });
    }
}

#[test]
fn a_proxy_is_what_is_connected_to() {
    let authority = Authority::new();
    let origin = secure(&authority, &[&TLS13]);
    let proxy = TestProxy::start(origin.address, Lets::All);
    let mut config = settings(&authority);
    config.settings.proxy = Some(format!("http://user:hunter2@{}", proxy.address));
    in_time(move || {
        let client = Client::new(config).unwrap();
        let way = client.way(&location("https://origin.test/object")).unwrap();
        assert!(!format!("{way:?}").contains("hunter2"));
        let survey = client.survey(&way, 2).unwrap();
        assert_eq!(survey.addresses[0].address, proxy.address);
        assert!(survey.addresses[0].handshake.is_some(), "{survey:?}");
        assert_eq!(proxy.asked()[0].0, "CONNECT origin.test:443 HTTP/1.1");
    });
}

#[test]
fn what_never_answers_ends_in_time() {
    let authority = Authority::new();
    // The kernel completes connects to it; nobody ever accepts them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/object", silent.local_addr().unwrap());
    let mut config = settings(&authority);
    config.settings.connect_timeout_ms = 200;
    in_time(move || {
        let client = Client::new(config).unwrap();
        let survey = client.survey(&client.way(&location(&url)).unwrap(), 1).unwrap();
        let failure = survey.addresses[0].failure.as_ref().unwrap();
        assert_eq!(failure.kind(), ErrorKind::Timeout);
        assert!(failure.to_string().contains("TLS handshake"), "{failure}");
        let nowhere = client.way(&location("https://nowhere.invalid/object")).unwrap();
        assert!(client.survey(&nowhere, 1).unwrap_err().to_string().contains("nowhere.invalid"));
    });
    drop(silent);
}

#[test]
fn the_way_to_a_bucket_is_known_without_keys() {
    let authority = Authority::new();
    let mut config = settings(&authority);
    config.settings.region = Some("eu-west-1".into());
    config.settings.oss_region = Some("cn-hangzhou".into());
    let client = Client::new(config).unwrap();
    let host = |url: &str| client.way(&location(url)).unwrap().endpoint.host;
    assert_eq!(host("s3://models/key"), "models.s3.eu-west-1.amazonaws.com");
    assert_eq!(host("oss://models"), "models.oss-cn-hangzhou.aliyuncs.com");
    let service = |dialect| client.way_to_buckets(dialect).map(|way| way.endpoint.host);
    assert_eq!(service(Dialect::Oss).unwrap(), "oss-cn-hangzhou.aliyuncs.com");
    assert_eq!(service(Dialect::S3).unwrap(), "s3.eu-west-1.amazonaws.com");
    assert_eq!(service(Dialect::Plain).unwrap_err().kind(), ErrorKind::Unsupported);
}
