//! Locations and endpoints: shown and read again they are the same, what goes into a request is one line, and nothing
//! that people are shown has a secret in it.

use flatout_wire::endpoint::Endpoint;
use flatout_wire::location::{HttpUrl, Location, LocationError};
use flatout_wire::oss::Oss;
use flatout_wire::request::{Request, get_url};
use flatout_wire::s3::{Addressing, S3};

use crate::secret::{SECRET, assert_hidden};

/// `bytes` are what a user typed, and what stands around a secret in it.
pub fn locations(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(location) = Location::parse(&text) {
        is_stable(&location, &text);
    }
    endpoint(&text);
    let (before, behind) = text.split_once('\n').unwrap_or((&text, ""));
    if may_be_a_password(before) {
        for scheme in ["http", "https", "s3", "oss", "HTTP"] {
            for typed in [
                format!("{scheme}://user:{before}{SECRET}{behind}@host/path"),
                format!("{scheme}:/user:{before}{SECRET}@host{behind}"),
                format!("user:{before}{SECRET}@{scheme}://host{behind}"),
            ] {
                shows_no_password(&typed);
            }
        }
    }
    // Behind another '@' there would be another host, and before it a user with a password.
    let path = behind.split('@').next().unwrap_or(behind);
    let token = before.replace(['/', '?', '#', ':'], "");
    shows_no_password(&format!("https://{SECRET}{token}@host{path}"));
    shows_no_password(&format!("https://{token}{SECRET}:@host{path}"));
    let hidden = before.replace(['&', '#', '\r'], "");
    shows_no_signature(&format!(
        "http://host/{}?X-Amz-Signature={hidden}{SECRET}&{behind}",
        hidden.replace('?', "")
    ));
}

/// What was understood stays what it is.
fn is_stable(location: &Location, text: &str) {
    let shown = location.to_string();
    let again =
        Location::parse(&shown).unwrap_or_else(|error| panic!("{text:?} shows as {shown:?}: {error}"));
    assert_eq!(again.to_string(), shown, "{text:?}");
    if !shown.contains("***") {
        assert_eq!(&again, location, "{text:?} shows as {shown:?}");
    }
    let name = location.name();
    assert!(!name.contains('/') && !matches!(name, "." | ".."), "{text:?} is called {name:?}");
    match location {
        Location::Http { url } => {
            assert!(!name.contains('\0'), "{text:?} is called {name:?}");
            goes_out_in_one_line(&get_url(url), &url.path_and_query);
            leads_on(url, text);
        }
        Location::S3 { bucket, key } | Location::Oss { bucket, key } => {
            assert_eq!(location.with_key(key.as_str()).as_ref(), Some(location));
            let s3 = S3::new(Some("http://127.0.0.1:9000"), None, Addressing::Path).expect("an endpoint");
            let oss = Oss::new(Some("http://127.0.0.1:9000"), None, Addressing::Path).expect("an endpoint");
            for request in [s3.get_object(bucket, key), oss.get_object(bucket, key)] {
                goes_out_in_one_line(&request, &request.path);
                let sent = request.path.strip_prefix(&format!("/{bucket}/")).expect("the bucket comes first");
                assert_eq!(decoded(sent), key.as_bytes(), "{text:?}");
            }
        }
    }
}

/// The head has as many lines as it has headers, and nothing in its first line could begin another.
fn goes_out_in_one_line(request: &Request, target: &str) {
    assert!(
        target.starts_with('/') && target.bytes().all(|byte| (0x21..=0x7e).contains(&byte)),
        "{target:?}"
    );
    let mut head = Vec::new();
    request.write_head(&mut head);
    let lines = head.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, request.headers.len() + 2, "{request:?}");
    assert!(head.ends_with(b"\r\n\r\n"));
    let spaces = head
        .split(|byte| *byte == b'\r')
        .next()
        .map(|line| line.iter().filter(|byte| **byte == b' ').count());
    assert_eq!(spaces, Some(2), "{request:?}");
}

/// Wherever a redirect leads, the user goes along to the same endpoint only.
fn leads_on(url: &HttpUrl, text: &str) {
    for to in [text, url.path_and_query.as_str(), "../x", "//other/y"] {
        let Ok(next) = url.follow(to) else { continue };
        if next.endpoint != url.endpoint && next.user_info.is_some() {
            assert!(to.contains('@'), "{to:?} takes the user of {text:?} along");
        }
        goes_out_in_one_line(&get_url(&next), &next.path_and_query);
    }
}

fn endpoint(text: &str) {
    let Ok((endpoint, base)) = Endpoint::parse(text) else { return };
    let shown = endpoint.to_string();
    assert_eq!(Endpoint::parse(&shown), Ok((endpoint.clone(), String::new())), "{text:?} shows as {shown:?}");
    let whole = format!("{shown}{base}");
    assert_eq!(Endpoint::parse(&whole), Ok((endpoint, base)), "{text:?} shows as {whole:?}");
}

/// Whether `user:` and this begin a password. Behind a port, or none, stands a path, and an '@' in it is a name's; behind
/// another '@' stands a host.
fn may_be_a_password(text: &str) -> bool {
    let piece = text.split(['/', '?', '#']).next().unwrap_or(text);
    let is_port = piece.len() < text.len() && piece.bytes().all(|byte| byte.is_ascii_digit());
    !is_port && !text.contains('@')
}

/// `typed` has a password where tools have one.
fn shows_no_password(typed: &str) {
    let location = Location::parse(typed);
    hides(location.as_ref(), typed);
    if let Err(error) = Endpoint::parse(typed) {
        assert_hidden(&format!("{error} {error:?}"), typed);
    }
}

fn shows_no_signature(typed: &str) {
    hides(Location::parse(typed).as_ref(), typed);
}

fn hides(location: Result<&Location, &LocationError>, typed: &str) {
    match location {
        Ok(location) => {
            assert_hidden(&format!("{location} {location:?}"), typed);
            if let Location::Http { url } = location {
                assert_hidden(&format!("{url} {url:?} {:?} {:?}", url.user_info, get_url(url)), typed);
            }
        }
        Err(error) => assert_hidden(&format!("{error} {error:?}"), typed),
    }
}

/// The bytes behind an encoded path, in which every `%` begins a triple.
fn decoded(path: &str) -> Vec<u8> {
    let mut pieces = path.split('%');
    let mut bytes = pieces.next().unwrap_or("").as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(&piece[..2], 16).expect("a triple"));
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    bytes
}
