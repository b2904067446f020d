//! Which proxy leads where, as tables.

use super::*;

fn endpoint(url: &str) -> Endpoint {
    Endpoint::parse(url).expect(url).0
}

/// Whether `NO_PROXY` with this text leaves the proxy out for that endpoint.
#[track_caller]
fn check(no_proxy: &str, url: &str, without: bool) {
    let routes = Routes::new(Some("http://proxy:3128"), Some(no_proxy), &Proxies::default()).expect("routes");
    assert_eq!(routes.of(&endpoint(url), Purpose::Store).is_none(), without, "{no_proxy:?} {url}");
}

#[test]
fn exceptions_are_read_as_curl_and_go_read_them() {
    check("", "https://a.example.com", false);
    check("*", "https://a.example.com", true);
    check("example.com", "https://example.com", true);
    check("example.com", "https://a.b.example.com", true);
    check("example.com", "https://notexample.com", false);
    check(".example.com", "https://example.com", true);
    check("*.example.com", "https://a.example.com", true);
    check("EXAMPLE.com.", "https://A.Example.com", true);
    check("other, example.com\tmore", "https://example.com", true);
    check("example.com:443", "https://example.com", true);
    check("example.com:444", "https://example.com", false);
    check("10.0.0.1", "http://10.0.0.1:9000", true);
    check("10.0.0.1", "http://10.0.0.11:9000", false);
    check("10.0.0.0/8", "http://10.99.0.1", true);
    check("10.0.0.0/8", "http://11.0.0.1", false);
    check("0.0.0.0/0", "http://11.0.0.1", true);
    check("0.0.0.0/0", "http://[2001:db8::1]", false);
    check("10.0.0.0/33", "http://10.0.0.1", false);
    check("10.0.0.1:9000", "http://10.0.0.1:9000", true);
    check("10.0.0.1:9000", "http://10.0.0.1:9001", false);
    check("2001:db8::/32", "http://[2001:db8:7::1]", true);
    check("[2001:db8::1]:9000", "http://[2001:db8::1]:9000", true);
    check("[2001:db8::1]:9000", "http://[2001:db8::1]:9001", false);
    check("2001:db8::1", "http://[2001:db8::1]:9000", true);
}

#[test]
fn what_is_this_machines_own_is_asked_directly() {
    let found =
        Proxies { http: Some("http://plain:1".into()), https: Some("secure:2".into()), ..Proxies::default() };
    let around = Routes::new(None, None, &found).expect("routes");
    let explicit = Routes::new(Some("named:3"), None, &found).expect("routes");
    let port = |routes: &Routes, url: &str| {
        routes.of(&endpoint(url), Purpose::Store).map(|proxy| proxy.endpoint.port)
    };
    for (url, found, named) in [
        ("http://host", Some(1), Some(3)),
        ("https://host", Some(2), Some(3)),
        ("http://localhost:9000", None, Some(3)),
        ("http://bucket.localhost:9000", None, Some(3)),
        ("https://127.0.0.2", None, Some(3)),
        ("http://[::1]:9000", None, Some(3)),
        ("http://169.254.169.254", None, None),
        ("http://169.254.170.2", None, None),
        ("http://[fd00:ec2::254]", None, None),
        ("http://[fe80::1]", None, None),
        ("http://100.100.100.200", None, None),
    ] {
        assert_eq!((port(&around, url), port(&explicit, url)), (found, named), "{url}");
    }
    for url in ["http://127.0.0.1:7799", "http://localhost:7799"] {
        assert!(explicit.of(&endpoint(url), Purpose::Keys).is_none(), "{url}: keys stay on this machine");
    }
    assert!(explicit.of(&endpoint("https://sts.amazonaws.com"), Purpose::Keys).is_some());
}

#[test]
fn a_proxy_has_a_host_a_port_and_perhaps_a_login() {
    let parsed = |text: &str| Proxy::parse(text).map(|proxy| (proxy.endpoint.to_string(), proxy.login));
    let basic = Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_owned());
    for (text, shown, login) in [
        ("http://proxy:3128", "http://proxy:3128", None),
        ("proxy:3128", "http://proxy:3128", None),
        ("HTTP://proxy", "http://proxy:80", None),
        ("http://Aladdin:open%20sesame@[::1]:8080/", "http://[::1]:8080", basic),
    ] {
        assert_eq!(parsed(text).ok(), Some((shown.to_owned(), login)), "{text}");
    }
    for (text, word) in [
        ("socks5://user:hunter2@proxy:1080", "socks5:// proxies are not supported"),
        ("https://user:hunter2@proxy", "https:// proxies are not supported"),
        ("http://user:hunter2@", "is no host"),
        ("proxy:99999", "is no port"),
        ("http://user:hun/ter2@proxy", "%2F"),
    ] {
        let error = parsed(text).expect_err(text);
        assert!(error.to_string().contains(word), "{error}");
        assert!(!format!("{error:?}").contains("hun"), "{error:?}");
    }
}

#[test]
fn a_request_is_handed_over_in_absolute_form() {
    let proxy = Proxy::parse("http://Aladdin:open%20sesame@proxy:1").expect("a proxy");
    let head = proxy.absolute(&endpoint("http://h:9000"), b"GET /a?b HTTP/1.1\r\nhost: h:9000\r\n\r\n");
    assert_eq!(
        String::from_utf8(head).expect("text"),
        "GET http://h:9000/a?b HTTP/1.1\r\nproxy-authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\
         host: h:9000\r\n\r\n"
    );
}

#[test]
fn debug_shows_no_password() {
    let found = Proxies { https: Some("http://user:hunter2@proxy".into()), ..Proxies::default() };
    assert!(!format!("{found:?}").contains("hunter2"));
}
