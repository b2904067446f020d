//! S3 requests: addressing, regions and the calls that a download needs. Those of writing are in
//! `s3_write`.

use std::str::FromStr;

use crate::endpoint::Endpoint;
use crate::listing::PageStart;
use crate::location::{HttpUrl, LocationError};
use crate::percent;
use crate::request::{Method, Request};

/// The region where nothing says otherwise, as in every SDK.
const DEFAULT_REGION: &str = "us-east-1";

/// Where a bucket's name goes: into the path or before the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addressing {
    /// Path for addresses, `localhost`, hosts of one label (`minio`: nobody resolves `bucket.minio`), and for
    /// buckets that are no single DNS label; virtual otherwise.
    #[default]
    Auto,
    /// `http://host/bucket/key`.
    Path,
    /// `http://bucket.host/key`.
    Virtual,
}

/// An S3 service: makes unsigned requests for its buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3 {
    pub endpoint: Endpoint,
    /// Empty, or `/x` where the service lies under a path.
    pub base_path: String,
    pub region: String,
    pub addressing: Addressing,
}

impl FromStr for Addressing {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Addressing, LocationError> {
        match text {
            "auto" => Ok(Addressing::Auto),
            "path" => Ok(Addressing::Path),
            "virtual" => Ok(Addressing::Virtual),
            _ => Err(LocationError::BadAddressing { text: crate::endpoint::shown(text) }),
        }
    }
}

impl S3 {
    /// The service at `endpoint_url`, or Amazon's in `region` where none is given.
    ///
    /// The region is the one given, else the one in an Amazon endpoint's name, else us-east-1.
    ///
    /// # Errors
    /// A bad URL or a region that could not be part of a host's name.
    pub fn new(
        endpoint_url: Option<&str>,
        region: Option<&str>,
        addressing: Addressing,
    ) -> Result<S3, LocationError> {
        let region = region.map(check_region).transpose()?;
        let (endpoint, base_path) = match endpoint_url {
            Some(url) => Endpoint::parse(url)?,
            None => Endpoint::parse(&amazon_url(region.unwrap_or(DEFAULT_REGION)))?,
        };
        let named = region.or_else(|| region_in_host(&endpoint.host)).unwrap_or(DEFAULT_REGION).to_owned();
        Ok(S3 { endpoint, base_path, region: named, addressing })
    }

    /// GET of an object.
    ///
    /// `range` and `if-match` are set by the caller, before or after signing: SigV4 needs only `host` and
    /// `x-amz-*` signed, so one signature serves all ranges of an object.
    pub fn get_object(&self, bucket: &str, key: &str) -> Request {
        self.request(Method::Get, bucket, key, String::new())
    }

    /// HEAD of an object, asking for its checksums.
    pub fn head_object(&self, bucket: &str, key: &str) -> Request {
        let mut request = self.request(Method::Head, bucket, key, String::new());
        request.set("x-amz-checksum-mode", "ENABLED");
        request
    }

    /// One page of a listing, at most `max_keys` long (1,000 where not said).
    ///
    /// Keys are asked for URL-encoded: XML 1.0 cannot carry all characters that a key may have.
    pub fn list_objects_v2(
        &self,
        bucket: &str,
        prefix: &str,
        delimiter: Option<char>,
        start: &PageStart,
        max_keys: Option<u32>,
    ) -> Request {
        let query = page_query(prefix, delimiter, start, max_keys);
        self.request(Method::Get, bucket, "", query)
    }

    /// All buckets of the account.
    pub fn list_buckets(&self) -> Request {
        Request::new(Method::Get, self.endpoint.clone(), format!("{}/", self.base_path), String::new())
    }

    /// Where a bucket is reached.
    pub fn endpoint_of(&self, bucket: &str) -> Endpoint {
        endpoint_of(&self.endpoint, self.addressing, bucket)
    }

    /// The service as `bucket` is to be asked for, after an answer told that it lies elsewhere: by a
    /// `region`, or by the `endpoint` that a redirect leads to. `None` where that is nothing new, or leads
    /// from `https` to `http`.
    ///
    /// Amazon's endpoints carry their region in the name and change it; any other stays and only signs for
    /// the region.
    pub fn elsewhere(&self, bucket: &str, region: Option<&str>, endpoint: Option<&Endpoint>) -> Option<S3> {
        let mut moved = self.clone();
        match (region.and_then(|region| check_region(region).ok()), endpoint) {
            (Some(region), _) if region != self.region => {
                moved.region = region.to_owned();
                moved.endpoint.host = amazon_host_in(&self.endpoint.host, region);
            }
            (_, Some(endpoint)) if endpoint.scheme >= self.endpoint.scheme => {
                moved.endpoint = endpoint.clone();
                let host = &endpoint.host;
                let bare = host.strip_prefix(bucket).and_then(|rest| rest.strip_prefix('.')).unwrap_or(host);
                moved.endpoint.host = bare.to_owned();
                moved.region = region_in_host(bare).unwrap_or(&self.region).to_owned();
            }
            _ => {}
        }
        (moved != *self).then_some(moved)
    }

    /// Whether a redirect to `url` only names another place for this very resource, as S3's own do. Anything
    /// else leads to something else, and says nothing about where the bucket lies.
    pub fn is_same_resource(url: &HttpUrl, bucket: &str, key: &str) -> bool {
        let mut tail = String::from("/");
        percent::encode_path(key, &mut tail);
        let path = url.path();
        let below = path.strip_prefix('/').and_then(|rest| rest.strip_prefix(bucket));
        path == tail || below.is_some_and(|below| below == tail || (below.is_empty() && key.is_empty()))
    }

    pub(crate) fn request(&self, method: Method, bucket: &str, key: &str, query: String) -> Request {
        bucket_request(method, (&self.endpoint, &self.base_path, self.addressing), (bucket, key), query)
    }
}

impl Addressing {
    fn is_virtual(self, endpoint: &Endpoint, bucket: &str) -> bool {
        match self {
            Addressing::Path => false,
            // An address has no subdomains, whatever was asked for.
            Addressing::Virtual => !endpoint.is_ip(),
            Addressing::Auto => has_subdomains(endpoint) && is_dns_label(bucket),
        }
    }
}

/// A request for a bucket or a key in it, at an endpoint with a base path, addressed one way or the other.
pub(crate) fn bucket_request(
    method: Method,
    (endpoint, base_path, addressing): (&Endpoint, &str, Addressing),
    (bucket, key): (&str, &str),
    query: String,
) -> Request {
    let mut path = base_path.to_owned();
    if !addressing.is_virtual(endpoint, bucket) {
        path.push('/');
        percent::encode_path(bucket, &mut path);
    }
    path.push('/');
    // Segments like "//", "." and ".." stay: they are part of the key, and nothing on the way may tidy them
    // up.
    percent::encode_path(key, &mut path);
    Request::new(method, endpoint_of(endpoint, addressing, bucket), path, query)
}

pub(crate) fn endpoint_of(endpoint: &Endpoint, addressing: Addressing, bucket: &str) -> Endpoint {
    let mut endpoint = endpoint.clone();
    if addressing.is_virtual(&endpoint, bucket) {
        endpoint.host = format!("{bucket}.{}", endpoint.host);
    }
    endpoint
}

/// The query of ListObjectsV2, in the order of its names, as they are signed.
pub(crate) fn page_query(
    prefix: &str,
    delimiter: Option<char>,
    start: &PageStart,
    max_keys: Option<u32>,
) -> String {
    let mut query = String::new();
    let mut add = |name: &str, value: &str| {
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(name);
        query.push('=');
        percent::encode_query(value, &mut query);
    };
    if let PageStart::Token(token) = start {
        add("continuation-token", token);
    }
    if let Some(delimiter) = delimiter {
        add("delimiter", delimiter.encode_utf8(&mut [0; 4]));
    }
    add("encoding-type", "url");
    add("list-type", "2");
    if let Some(max_keys) = max_keys {
        add("max-keys", &max_keys.to_string());
    }
    if !prefix.is_empty() {
        add("prefix", prefix);
    }
    if let PageStart::After(key) = start {
        add("start-after", key);
    }
    query
}

fn has_subdomains(endpoint: &Endpoint) -> bool {
    !endpoint.is_ip() && endpoint.host.contains('.') && !endpoint.host.ends_with(".localhost")
}

fn is_dns_label(bucket: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (3..=63).contains(&bucket.len())
        && bucket.bytes().all(known)
        && !bucket.starts_with('-')
        && !bucket.ends_with('-')
}

pub(crate) fn check_region(region: &str) -> Result<&str, LocationError> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let usable = !region.is_empty() && region.len() <= 63 && region.bytes().all(known);
    if usable { Ok(region) } else { Err(LocationError::BadRegion { region: crate::endpoint::shown(region) }) }
}

fn amazon_url(region: &str) -> String {
    let china = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://s3.{region}.amazonaws.com{china}")
}

/// The name of Amazon's endpoint that serves `region`, where `host` is Amazon's and names its own; else
/// `host`.
fn amazon_host_in(host: &str, region: &str) -> String {
    match region_in_host(host) {
        Some(named) if host.contains(named) => host.replacen(named, region, 1),
        // The name without a region stands for us-east-1; the accelerator serves every region.
        Some(_) if !host.starts_with("s3-accelerate") => amazon_url(region).split_off("https://".len()),
        _ => host.to_owned(),
    }
}

/// The region in `s3.eu-west-1.amazonaws.com`, `s3-eu-west-1.…`, `s3.dualstack.eu-west-1.…`,
/// `bucket.s3.eu-west-1.…`, and in the `.cn` forms of these; us-east-1 for `s3.amazonaws.com`.
pub(crate) fn region_in_host(host: &str) -> Option<&str> {
    let host = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com")?;
    let region = match host.rsplit('.').next()? {
        "s3" | "s3-accelerate" | "s3-external-1" | "dualstack" => return Some(DEFAULT_REGION),
        last => last.strip_prefix("s3-").unwrap_or(last),
    };
    // A region ends in a number (eu-west-1), which no service's or bucket's label next to the domain does.
    (region.contains('-') && region.ends_with(|c: char| c.is_ascii_digit())).then_some(region)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(endpoint: &str, addressing: Addressing, bucket: &str, key: &str, url: &str) {
        let s3 = S3::new(Some(endpoint), None, addressing).expect(endpoint);
        let request = s3.get_object(bucket, key);
        assert_eq!(request.url(), url);
        assert_eq!(request.header("host"), Some(request.endpoint.host_header().as_str()));
        assert_eq!(request.header("accept-encoding"), Some("identity"));
    }

    #[test]
    fn addressing() {
        use Addressing::{Auto, Path, Virtual};
        check("http://127.0.0.1:9000", Auto, "bucket", "k", "http://127.0.0.1:9000/bucket/k");
        check("http://[::1]:9000", Auto, "bucket", "k", "http://[::1]:9000/bucket/k");
        check("http://[::1]:9000", Virtual, "bucket", "k", "http://[::1]:9000/bucket/k");
        check("http://localhost:9000", Auto, "bucket", "k", "http://localhost:9000/bucket/k");
        check("http://localhost:9000", Virtual, "bucket", "k", "http://bucket.localhost:9000/k");
        check("http://s3.localhost", Auto, "bucket", "k", "http://s3.localhost/bucket/k");
        check("http://minio:9000", Auto, "bucket", "k", "http://minio:9000/bucket/k");
        check("http://s3.example.com", Auto, "bucket", "k", "http://bucket.s3.example.com/k");
        check("http://s3.example.com", Path, "bucket", "k", "http://s3.example.com/bucket/k");
        check("http://s3.example.com/base/", Auto, "bucket", "k", "http://bucket.s3.example.com/base/k");
        check("http://s3.example.com/base/", Path, "bucket", "k", "http://s3.example.com/base/bucket/k");
        for bucket in ["dotted.bucket", "Upper", "under_score", "-dash", "dash-", "ab"] {
            let url = format!("http://s3.example.com/{bucket}/k");
            check("http://s3.example.com", Auto, bucket, "k", &url);
        }
    }

    #[test]
    fn keys_in_paths() {
        let rows = [
            ("a b+c", "a%20b%2Bc"),
            ("/a//b/../.", "/a//b/../."),
            ("ü?#%", "%C3%BC%3F%23%25"),
            ("folder/", "folder/"),
            ("", ""),
        ];
        for (key, path) in rows {
            check("http://h.example", Addressing::Path, "b", key, &format!("http://h.example/b/{path}"));
        }
    }

    #[test]
    fn endpoints_and_regions() {
        let rows = [
            (None, None, "https://s3.us-east-1.amazonaws.com:443", "us-east-1"),
            (None, Some("eu-west-1"), "https://s3.eu-west-1.amazonaws.com:443", "eu-west-1"),
            (None, Some("cn-north-1"), "https://s3.cn-north-1.amazonaws.com.cn:443", "cn-north-1"),
            (
                Some("http://s3.eu-west-2.amazonaws.com"),
                None,
                "http://s3.eu-west-2.amazonaws.com:80",
                "eu-west-2",
            ),
            (
                Some("http://s3.eu-west-2.amazonaws.com"),
                Some("x-1"),
                "http://s3.eu-west-2.amazonaws.com:80",
                "x-1",
            ),
            (Some("http://minio:9000"), None, "http://minio:9000", "us-east-1"),
        ];
        for (url, region, endpoint, expected) in rows {
            let s3 = S3::new(url, region, Addressing::Auto).unwrap();
            assert_eq!((s3.endpoint.to_string().as_str(), s3.region.as_str()), (endpoint, expected));
        }
        for region in ["", "eu west", "eu/west", "a.b"] {
            assert!(S3::new(None, Some(region), Addressing::Auto).is_err(), "{region}");
        }
    }

    #[test]
    fn regions_in_hosts() {
        let rows = [
            ("s3.amazonaws.com", Some("us-east-1")),
            ("s3-eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("s3.dualstack.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("bucket.s3.ap-south-1.amazonaws.com", Some("ap-south-1")),
            ("s3.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("s3.example.com", None),
            ("amazonaws.com", None),
        ];
        for (host, region) in rows {
            assert_eq!(region_in_host(host), region, "{host}");
        }
    }

    #[test]
    fn buckets_that_lie_elsewhere() {
        let (amazon, europe) =
            ("https://s3.us-east-1.amazonaws.com", "https://s3.eu-west-1.amazonaws.com:443");
        let rows = [
            (amazon, Some("eu-west-1"), None, Some((europe, "eu-west-1"))),
            ("https://s3.amazonaws.com", Some("eu-west-1"), None, Some((europe, "eu-west-1"))),
            (
                "http://s3.dualstack.us-east-1.amazonaws.com",
                Some("eu-west-1"),
                None,
                Some(("http://s3.dualstack.eu-west-1.amazonaws.com:80", "eu-west-1")),
            ),
            (
                "https://s3-accelerate.amazonaws.com",
                Some("eu-west-1"),
                None,
                Some(("https://s3-accelerate.amazonaws.com:443", "eu-west-1")),
            ),
            // MinIO and its like: another region to sign for, the same place.
            ("http://127.0.0.1:9000", Some("eu-west-1"), None, Some(("http://127.0.0.1:9000", "eu-west-1"))),
            ("http://127.0.0.1:9000", Some("us-east-1"), None, None),
            ("http://127.0.0.1:9000", Some("a b"), None, None),
            (
                amazon,
                None,
                Some("https://bucket.s3-us-west-2.amazonaws.com"),
                Some(("https://s3-us-west-2.amazonaws.com:443", "us-west-2")),
            ),
            (
                "http://127.0.0.1:9000",
                None,
                Some("http://127.0.0.2:9000"),
                Some(("http://127.0.0.2:9000", "us-east-1")),
            ),
            ("http://127.0.0.1:9000", None, Some("https://h"), Some(("https://h:443", "us-east-1"))),
            ("https://h", None, Some("http://h"), None),
            ("http://h", None, Some("http://h"), None),
            ("http://h", None, None, None),
        ];
        for (own, region, to, expected) in rows {
            let s3 = S3::new(Some(own), None, Addressing::Auto).expect(own);
            let to = to.map(|url| Endpoint::parse(url).expect(url).0);
            let moved = s3.elsewhere("bucket", region, to.as_ref());
            let found = moved.as_ref().map(|s3| (s3.endpoint.to_string(), s3.region.as_str()));
            let found = found.as_ref().map(|(endpoint, region)| (endpoint.as_str(), *region));
            assert_eq!(found, expected, "{own} {region:?} {to:?}");
        }
    }

    #[test]
    fn calls() {
        let s3 = S3::new(Some("http://h:1"), None, Addressing::Path).unwrap();
        let target = |request: Request| request.target();
        let page = s3.list_objects_v2("b", "a b/", Some('/'), &PageStart::Token("t+/=".into()), Some(5));
        let query = "continuation-token=t%2B%2F%3D&delimiter=%2F&encoding-type=url&list-type=2&max-keys=5&prefix=a%20b%2F";
        assert_eq!(target(page), format!("/b/?{query}"));
        assert_eq!(
            target(s3.list_objects_v2("b", "", None, &PageStart::First, None)),
            "/b/?encoding-type=url&list-type=2"
        );
        let page = s3.list_objects_v2("b", "a/", None, &PageStart::After("a/b ü".into()), None);
        assert_eq!(target(page), "/b/?encoding-type=url&list-type=2&prefix=a%2F&start-after=a%2Fb%20%C3%BC");
        assert_eq!(target(s3.list_buckets()), "/");
        let head = s3.head_object("b", "k");
        assert_eq!((head.method, head.header("x-amz-checksum-mode")), (Method::Head, Some("ENABLED")));
        let rows = [("auto", Addressing::Auto), ("path", Addressing::Path), ("virtual", Addressing::Virtual)];
        for (text, addressing) in rows {
            assert_eq!(text.parse(), Ok(addressing));
        }
        assert!("paht".parse::<Addressing>().is_err());
    }
}
