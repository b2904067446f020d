//! Through a proxy: tunnels for https, absolute form for http, what goes past it, and its refusals.

use flatout_engine::{Client, Config, Error, ErrorKind, Proxies};
use flatout_wire::range::Span;
use rustls::version::TLS13;

use crate::certificates::{Authority, NOW};
use crate::origin::{Asked, Origin, Reply, object};
use crate::proxy::{Lets, TestProxy};
use crate::secure_origin::{SecureOrigin, Wire, config};
use crate::{SIZE, in_time, location, read, serve_object, settings};

/// RFC 7617 §2's pair.
const LOGIN: &str = "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==";

fn secure(authority: &Authority) -> SecureOrigin {
    let identity = authority.identity(&["origin.test"], NOW);
    SecureOrigin::start(config(&identity, &[&TLS13]), Wire::default(), serve_object)
}

fn plain() -> Origin {
    Origin::start(|asked: &Asked| match asked.method.as_str() {
        "HEAD" => Reply::Keep(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\netag: \"v1\"\r\n\r\n".to_vec()),
        _ => serve_object(asked),
    })
}

fn through(authority: &Authority, proxy: &str) -> Config {
    let mut config = settings(authority);
    config.settings.proxy = Some(proxy.to_owned());
    config
}

#[test]
fn https_goes_through_a_tunnel() {
    let authority = Authority::new();
    let origin = secure(&authority);
    let proxy = TestProxy::start(origin.address, Lets::Login(LOGIN));
    let url = format!("http://Aladdin:open%20sesame@{}", proxy.address);
    let config = through(&authority, &url);
    // The name is for the proxy to resolve: nobody else knows it.
    let (bytes, _) = in_time(move || read(config, "https://origin.test/object").unwrap());
    assert!(bytes == object(SIZE));
    let asked = proxy.asked();
    let tunnel = ("CONNECT origin.test:443 HTTP/1.1".to_owned(), Some(LOGIN.to_owned()));
    assert!(!asked.is_empty() && asked.iter().all(|line| *line == tunnel), "{asked:?}");
    // The login is the proxy's, not the origin's.
    let seen = origin.seen.asked.lock().unwrap();
    assert!(seen.iter().all(|asked| asked.header("proxy-authorization").is_none()));
}

#[test]
fn http_is_handed_over_whole() {
    let origin = plain();
    let proxy = TestProxy::start(origin.address, Lets::Login(LOGIN));
    let authority = Authority::new();
    let config = through(&authority, &format!("Aladdin:open%20sesame@{}", proxy.address));
    in_time(move || {
        let client = Client::new(config).unwrap();
        let location = location("http://origin.test:9000/folder/object?x=1");
        assert_eq!(client.stat(&location).unwrap().version.size, Some(SIZE));
        let mut buffer = vec![0; SIZE as usize];
        client.get_into(&location, Span::All, &mut buffer).unwrap();
        assert!(buffer == object(SIZE));
    });
    let asked = proxy.asked();
    assert_eq!(asked[0].0, "HEAD http://origin.test:9000/folder/object?x=1 HTTP/1.1");
    for (line, login) in &asked[1..] {
        assert_eq!(line, "GET http://origin.test:9000/folder/object?x=1 HTTP/1.1");
        assert_eq!(login.as_deref(), Some(LOGIN));
    }
    let seen = origin.asked();
    assert!(seen.iter().all(|asked| asked.header("host") == Some("origin.test:9000")), "{seen:?}");
}

#[test]
fn what_was_found_around_is_by_scheme_and_leaves_loopback_out() {
    let origin = plain();
    let (used, unused) =
        (TestProxy::start(origin.address, Lets::All), TestProxy::start(origin.address, Lets::All));
    let authority = Authority::new();
    let mut config = settings(&authority);
    config.proxies = Proxies { http: Some(used.url()), https: Some(unused.url()), no_proxy: None };
    let direct = origin.url();
    in_time(move || {
        read(config.clone(), "http://origin.test/object").unwrap();
        read(config, &direct).unwrap();
    });
    assert!(used.asked().iter().all(|(line, _)| line.starts_with("GET http://origin.test/object ")));
    assert!(!used.asked().is_empty() && unused.asked().is_empty());
}

#[test]
fn no_proxy_goes_past_it() {
    let origin = plain();
    let proxy = TestProxy::start(origin.address, Lets::All);
    let authority = Authority::new();
    let mut config = through(&authority, &proxy.url());
    config.settings.no_proxy = Some("example.com, .test".into());
    config.settings.resolve = vec!["origin.test:127.0.0.1".into()];
    let url = format!("http://origin.test:{}/object", origin.address.port());
    in_time(move || read(config, &url).unwrap());
    assert!(proxy.asked().is_empty());
}

#[track_caller]
fn check_error(config: Config, url: &'static str, kind: ErrorKind, words: &[&str]) {
    let (read, stat) = in_time(move || {
        let stat = Client::new(config.clone()).unwrap().stat(&location(url)).unwrap_err();
        (read(config, url).unwrap_err(), stat)
    });
    for error in [read, stat] {
        let said = said(&error);
        assert_eq!(error.kind(), kind, "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}\nlacks one of {words:?}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

fn said(error: &Error) -> String {
    format!("{error}\n{}", error.hint().map_or("no hint".to_owned(), ToString::to_string))
}

#[test]
fn refusals_name_the_proxy_and_no_password() {
    let origin = plain();
    let authority = Authority::new();
    for url in ["https://origin.test/object", "http://origin.test/object"] {
        let proxy = TestProxy::start(origin.address, Lets::Login(LOGIN));
        let named = format!("the proxy http://{}", proxy.address);
        let config = through(&authority, &proxy.url());
        check_error(config, url, ErrorKind::Denied, &[&named, "wants a user and password", "USER:PASSWORD@"]);
        let config = through(&authority, &format!("http://user:hunter2@{}", proxy.address));
        check_error(config, url, ErrorKind::Denied, &[&named, "does not accept the user and password"]);
        // Nobody listens there, and no test can be given it.
        let config = through(&authority, "http://user:hunter2@127.0.0.1:1");
        check_error(
            config,
            url,
            ErrorKind::Network,
            &["cannot connect to the proxy http://127.0.0.1:1", "name the host in no-proxy"],
        );
    }
    let https = "https://origin.test/object";
    for (status, kind) in [(403, ErrorKind::Denied), (502, ErrorKind::Network)] {
        let proxy = TestProxy::start(origin.address, Lets::None(status));
        let status = format!("(status {status})");
        check_error(
            through(&authority, &proxy.url()),
            https,
            kind,
            &["the proxy http://127.0.0.1", "origin.test:443", &status],
        );
    }
}

#[test]
fn a_proxy_that_is_none_is_refused_at_once() {
    for (proxy, words) in [
        ("socks5://user:hunter2@127.0.0.1:1080", "socks5:// proxies are not supported"),
        ("http://user:hunter2@", "is no host"),
    ] {
        let authority = Authority::new();
        let error = Client::new(through(&authority, proxy)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Usage);
        let said = said(&error);
        assert!(
            said.contains(words) && said.contains("settings: proxy: ") && said.contains("http://HOST:PORT"),
            "{said}"
        );
        assert!(!said.contains("hunter2"), "{said}");
    }
}
