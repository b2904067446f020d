//! Keys on the road: asked for once by all, renewed while parts are on their way, refused with the reasons.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatout_engine::credentials::{Fixed, Grant, Provider, Refused, Tried, Web};
use flatout_engine::{Client, Config, Error, ErrorKind, Patience};
use flatout_wire::endpoint::Endpoint;
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use flatout_wire::request::{Method, Request};
use flatout_wire::sign::Credentials;

use crate::origin::{Asked, Origin, Reply, object, right};
use crate::{PART, SIZE, config};

/// Answers by a function of how often it was asked before.
struct Scripted<F> {
    asked: AtomicUsize,
    answer: F,
}

impl<F> std::fmt::Debug for Scripted<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scripted({:?})", self.asked)
    }
}

impl<F: Fn(usize, &Web) -> Result<Grant, Refused> + Send + Sync> Provider for Scripted<F> {
    fn provide(&self, web: &Web) -> Result<Grant, Refused> {
        (self.answer)(self.asked.fetch_add(1, Ordering::SeqCst), web)
    }
}

fn scripted<F: Fn(usize, &Web) -> Result<Grant, Refused> + Send + Sync>(answer: F) -> Arc<Scripted<F>> {
    Arc::new(Scripted { asked: AtomicUsize::new(0), answer })
}

fn credentials(token: usize) -> Credentials {
    Credentials {
        access_key: "AKIDEXAMPLEEXAMPLE".into(),
        secret_key: "s3cr3t".into(),
        session_token: Some(format!("token{token}")),
    }
}

fn numbered(number: usize) -> Result<Grant, Refused> {
    Ok(Grant { credentials: credentials(number), expires: None, provider: "test".into() })
}

fn failed(why: &str, failed: bool) -> Refused {
    Refused(vec![Tried { provider: "profile dev".into(), why: why.into(), failed }])
}

fn client(origin: &Origin, provider: Arc<dyn Provider>, shards: u32) -> Client {
    client_of(origin, provider, shards, 8)
}

fn client_of(origin: &Origin, provider: Arc<dyn Provider>, shards: u32, parallel: u32) -> Client {
    let mut config = Config { aws_credentials: provider, ..config() };
    config.settings.endpoint_url = Some(format!("http://{}", origin.address));
    config.settings.shards = shards;
    config.settings.parallel = Some(parallel);
    Client::new(config).expect("good settings")
}

fn read(client: &Client) -> Result<Vec<u8>, Error> {
    let location = Location::parse("s3://bucket/object").expect("a location");
    let mut buffer = vec![0; SIZE as usize];
    client.get_into(&location, Span::All, &mut buffer)?;
    Ok(buffer)
}

fn error(status: &str, code: &str) -> Reply {
    let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    let length = body.len();
    Reply::Keep(format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes())
}

/// An origin that serves whoever has a token that `accepts` takes, given how many requests came before.
fn guarded(code: &'static str, accepts: impl Fn(&str, usize) -> bool + Send + Sync + 'static) -> Origin {
    Origin::start(move |asked| {
        let token = asked.header("x-amz-security-token").unwrap_or("nobody");
        match accepts(token, asked.number) {
            false if asked.method == "HEAD" => {
                Reply::Keep(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n".to_vec())
            }
            false => error("400 Bad Request", code),
            true if asked.method == "HEAD" => whole_head(),
            true => Reply::Keep(right(asked, &object(SIZE))),
        }
    })
}

fn whole_head() -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\netag: \"v1\"\r\n\r\n");
    Reply::Keep(head.into_bytes())
}

#[test]
fn all_parts_and_shards_wait_for_one_question() {
    let origin = guarded("InvalidToken", |token, _| token == "token0");
    let provider = scripted(|number, _| {
        std::thread::sleep(Duration::from_millis(50));
        numbered(number)
    });
    let client = client(&origin, provider.clone(), 3);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(read(&client).expect("the object arrives") == object(SIZE)));
        }
    });
    assert_eq!(provider.asked.load(Ordering::SeqCst), 1);
}

#[test]
fn a_token_that_expires_on_the_way_is_renewed_once() {
    for code in ["ExpiredToken", "InvalidToken", "RequestExpired", "SecurityTokenExpired"] {
        // The first token serves five requests; from then on it is refused, whichever shard has it.
        let origin = guarded(code, |token, number| token == "token1" || (token == "token0" && number < 5));
        let provider = scripted(|number, _| numbered(number));
        let client = client(&origin, provider.clone(), 2);
        assert!(read(&client).expect("the object arrives") == object(SIZE), "{code}");
        assert_eq!(provider.asked.load(Ordering::SeqCst), 2, "{code}");
        let asked = origin.asked();
        let old = asked.iter().filter(|asked| asked.header("x-amz-security-token") == Some("token0"));
        assert!(old.count() <= 5 + 9, "{code}: one refusal for each part in flight and the HEAD");
        assert!(asked.len() as u64 >= SIZE / PART);
    }
}

#[test]
fn tokens_that_live_for_a_moment_are_renewed_as_often_as_it_takes() {
    // Each token serves four requests: the second renewal came within seconds of the first, and was not asked
    // for.
    let served: Mutex<HashMap<String, u32>> = Mutex::default();
    let origin = guarded("ExpiredToken", move |token, _| {
        let mut served = served.lock().unwrap();
        let count = served.entry(token.to_owned()).or_default();
        *count += 1;
        *count <= 4
    });
    let provider = scripted(|number, _| numbered(number));
    let client = client_of(&origin, provider.clone(), 1, 1);
    assert!(read(&client).expect("the object arrives") == object(SIZE));
    let asked = provider.asked.load(Ordering::SeqCst) as u64;
    assert!((4..=14).contains(&asked), "{asked} questions for 13 parts and a HEAD");
}

#[test]
fn new_keys_that_are_refused_at_once_are_asked_for_once() {
    let origin = guarded("ExpiredToken", |_, _| false);
    let provider = scripted(|number, _| numbered(number));
    let client = client(&origin, provider.clone(), 1);
    for _ in 0..3 {
        assert_eq!(read(&client).expect_err("they are refused").kind(), ErrorKind::Denied);
    }
    assert_eq!(provider.asked.load(Ordering::SeqCst), 2, "not once more for each transfer");
}

#[test]
fn keys_that_stay_refused_are_an_error() {
    let origin = guarded("ExpiredToken", |_, _| false);
    let provider = Arc::new(Fixed(credentials(0)));
    let refused = read(&client(&origin, provider, 1)).expect_err("the keys are old");
    assert_eq!(refused.kind(), ErrorKind::Denied);
    assert!(refused.to_string().contains("the keys have expired (400 ExpiredToken"), "{refused}");
    assert_eq!(origin.asked().len(), 1, "the same keys are not sent twice");
}

#[test]
fn a_renewal_that_fails_is_told_with_the_refusal() {
    let origin = guarded("ExpiredToken", |_, _| false);
    let provider = scripted(|number, _| match number {
        0 => numbered(0),
        _ => Err(failed("STS is down", true)),
    });
    let client = client(&origin, provider, 1);
    for _ in 0..2 {
        let refused = read(&client).expect_err("the keys are old");
        assert_eq!(refused.kind(), ErrorKind::Denied);
        let hint = refused.hint().expect("a hint").to_string();
        assert_eq!(hint, "the keys could not be renewed: profile dev: STS is down");
    }
}

#[test]
fn who_has_no_keys_is_told_who_was_asked() {
    let origin = Origin::start(|_| error("403 Forbidden", "AccessDenied"));
    let nothing = scripted(|_, _| Err(failed("it has no keys", false)));
    let refused = read(&client(&origin, nothing, 1)).expect_err("a private bucket");
    assert_eq!(refused.hint(), Some(&"the request was not signed: profile dev: it has no keys".into()));
    assert_eq!(origin.asked()[0].header("authorization"), None);

    let broken = scripted(|_, _| Err(failed("the login is over: run `aws sso login`", true)));
    let before = origin.asked().len();
    let refused = read(&client(&origin, broken, 1)).expect_err("no keys");
    assert_eq!(refused.kind(), ErrorKind::Denied);
    let said = "read: s3://bucket/object: there are no keys to sign with: profile dev: the login is over: run `aws sso login`";
    assert_eq!(refused.to_string(), said);
    assert_eq!(origin.asked().len(), before, "nothing is sent without the keys that were meant");
}

#[test]
fn a_provider_that_panics_fails_the_transfer() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    let provider = scripted(|_, _| panic!("a defect of a provider"));
    let refused = read(&client(&origin, provider, 1)).expect_err("no keys");
    assert!(refused.to_string().contains("panicked"), "{refused}");
}

/// The provider's service is the origin itself: its call and the parts that wait for it share the one shard.
fn asking(address: std::net::SocketAddr, patience: Patience) -> Arc<dyn Provider> {
    scripted(move |number, web| {
        let (endpoint, _) = Endpoint::parse(&format!("http://{address}")).expect("an endpoint");
        let request = Request::new(Method::Post, endpoint, "/token".into(), String::new());
        let told = |error: Error| failed(&error.to_string(), true);
        let reply = web.ask(request, "a=1", patience).map_err(told)?;
        assert_eq!((reply.status, &*reply.body), (200, &b"ok"[..]));
        numbered(number)
    })
}

fn with_service(service: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Origin {
    Origin::start(move |asked| match (asked.path.as_str(), asked.method.as_str()) {
        ("/token", _) => service(asked),
        (_, "HEAD") => whole_head(),
        _ => Reply::Keep(right(asked, &object(SIZE))),
    })
}

#[test]
fn a_provider_asks_through_the_shard_that_waits_for_it() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    // Busy at first: a service is asked again.
    let origin = with_service(move |asked| {
        let mut log = log.lock().expect("no panic");
        log.push((asked.method.clone(), asked.header("content-length").map(String::from)));
        match log.len() {
            1 => Reply::Close(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n".to_vec()),
            _ => Reply::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_vec()),
        }
    });
    let client = client(&origin, asking(origin.address, Patience::SERVICE), 1);
    assert!(read(&client).expect("the object arrives") == object(SIZE));
    let post = ("POST".to_string(), Some("3".to_string()));
    assert_eq!(*seen.lock().expect("no panic"), [post.clone(), post]);
}

#[test]
fn a_silent_service_is_asked_once_and_given_up() {
    let origin = with_service(|_| Reply::Hang(Vec::new()));
    let client = client(&origin, asking(origin.address, Patience::METADATA), 1);
    let refused = read(&client).expect_err("no keys");
    assert!(refused.to_string().contains("did not answer in time"), "{refused}");
    assert_eq!(origin.asked().len(), 1);
}

#[test]
fn a_client_may_be_closed_while_a_provider_waits() {
    let origin = with_service(|_| Reply::Hang(Vec::new()));
    let client = client(&origin, asking(origin.address, Patience::SERVICE), 1);
    let location = Location::parse("s3://bucket/object").expect("a location");
    let get = flatout_engine::Get::new(location, flatout_engine::Landing::Nowhere);
    let transfer = client.get(get).expect("it starts");
    while origin.asked().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(client);
    assert_eq!(transfer.wait().expect_err("closed").kind(), ErrorKind::Cancelled);
}

#[test]
fn keys_can_be_asked_for_alone() {
    let origin = Origin::start(|_| error("403 Forbidden", "AccessDenied"));
    let keys = client(&origin, Arc::new(Fixed(credentials(7))), 1).aws_keys().expect("keys");
    assert_eq!(keys, Some(credentials(7)));
    let who = client(&origin, Arc::new(Fixed(credentials(7))), 1).who_has_aws_keys().expect("keys");
    assert_eq!((who.provider.as_str(), who.credentials), ("fixed", credentials(7)));
    let mut config = Config { aws_credentials: Arc::new(Fixed(credentials(7))), ..Config::default() };
    config.settings.no_sign_request = true;
    assert_eq!(Client::new(config).expect("good settings").aws_keys().expect("no keys"), None);
    assert_eq!(client(&origin, scripted(|_, _| numbered(0)), 1).oss_keys().expect("no keys"), None);
    assert!(origin.asked().is_empty());
}
