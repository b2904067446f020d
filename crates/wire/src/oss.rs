//! OSS requests: endpoints and what their names tell, regions, and the calls that a download needs. Those of
//! writing are in `oss_write`.

use crate::endpoint::{Endpoint, Scheme, shown};
use crate::listing::PageStart;
use crate::location::LocationError;
use crate::oss_sign::{self, RANGE_BEHAVIOR, SignatureVersion};
use crate::percent;
use crate::request::{Method, Request};
use crate::s3::{Addressing, bucket_request, check_region, endpoint_of, page_query};
use crate::sign::Credentials;

/// What version 4 signs for where an endpoint of its own name tells no region; such services do not look at
/// it.
const DEFAULT_REGION: &str = "cn-hangzhou";

/// OSS gives 100 keys and 100 buckets unless asked for more.
const PAGE_KEYS: u32 = 1000;

/// What kind of way to OSS an endpoint is. The internal one costs no traffic and is the fastest, but reaches
/// only the machines of its own region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointKind {
    /// `oss-REGION.aliyuncs.com`, and `REGION.oss.aliyuncs.com`, which answers over IPv6 too.
    Public,
    /// `oss-REGION-internal.aliyuncs.com`, and `ZONE-internal.oss-data-acc.aliyuncs.com`, a zone's cache
    /// before it.
    Internal,
    /// `oss-accelerate.aliyuncs.com` and `oss-accelerate-overseas.aliyuncs.com`: for the far side of the
    /// world.
    Accelerate,
    /// Any other: a gateway, a development origin, a name of the user's own.
    Custom,
}

/// An OSS service: makes unsigned requests for its buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oss {
    pub endpoint: Endpoint,
    /// Empty, or `/x` where the service lies under a path.
    pub base_path: String,
    /// `cn-hangzhou`
    pub region: String,
    pub addressing: Addressing,
    pub kind: EndpointKind,
    /// What version 4 signs for: `oss`, or `oss-cloudbox`.
    product: &'static str,
}

impl Oss {
    /// The service at `endpoint`, or the public one of `region` where none is given.
    ///
    /// An endpoint without a scheme is reached by `https`, as in Alibaba's own tools, and by `http` on this
    /// machine. A region may be written `cn-hangzhou` or `oss-cn-hangzhou`; the one given goes before the one
    /// in the endpoint's name.
    ///
    /// # Errors
    /// Neither endpoint nor region; a bad endpoint, or one that names a bucket; a region that could not be
    /// part of a host's name.
    pub fn new(
        endpoint: Option<&str>,
        region: Option<&str>,
        addressing: Addressing,
    ) -> Result<Oss, LocationError> {
        let region = region.map(|region| check_region(bare_region(region))).transpose()?;
        let (endpoint, base_path) = match (endpoint, region) {
            (Some(endpoint), _) => Endpoint::parse(&with_scheme(endpoint))?,
            (None, Some(region)) => Endpoint::parse(&format!("https://{}", public_host(region)))?,
            (None, None) => return Err(LocationError::NoOssEndpoint),
        };
        let known = HostParts::of(&endpoint.host);
        if let Some(bucket) = known.bucket {
            let host = endpoint.host[bucket.len() + 1..].into();
            return Err(LocationError::BucketInEndpoint { bucket: bucket.into(), host });
        }
        let region = region.or(known.region).unwrap_or(DEFAULT_REGION).to_owned();
        let (kind, product) = (known.kind, known.product);
        Ok(Oss { endpoint, base_path, region, addressing, kind, product })
    }

    /// A signer for this service.
    pub fn signer(&self, credentials: Credentials, version: SignatureVersion) -> oss_sign::Signer {
        oss_sign::Signer::new(credentials, version, &self.region, self.product)
    }

    /// The endpoint of the same region that machines within it should use; `None` where this is it, or none
    /// is known.
    pub fn internal_host(&self) -> Option<String> {
        (self.kind == EndpointKind::Public).then(|| format!("oss-{}-internal.aliyuncs.com", self.region))
    }

    /// GET of an object.
    ///
    /// `range` and `if-match` are set by the caller, before or after signing: OSS does not sign them, so one
    /// signature serves all ranges of an object.
    pub fn get_object(&self, bucket: &str, key: &str) -> Request {
        let mut request = self.request(Method::Get, bucket, key, String::new());
        request.set(RANGE_BEHAVIOR.0, RANGE_BEHAVIOR.1);
        request
    }

    /// HEAD of an object; its CRC is always stated.
    pub fn head_object(&self, bucket: &str, key: &str) -> Request {
        self.request(Method::Head, bucket, key, String::new())
    }

    /// One page of a listing, at most `max_keys` long (1,000 where not said).
    pub fn list_objects_v2(
        &self,
        bucket: &str,
        prefix: &str,
        delimiter: Option<char>,
        start: &PageStart,
        max_keys: Option<u32>,
    ) -> Request {
        let query = page_query(prefix, delimiter, start, max_keys.or(Some(PAGE_KEYS)));
        self.request(Method::Get, bucket, "", query)
    }

    /// One page of the account's buckets, of all regions. `marker` is the `next` of the page before.
    pub fn list_buckets(&self, marker: Option<&str>) -> Request {
        let mut query = String::new();
        if let Some(marker) = marker {
            query.push_str("marker=");
            percent::encode_query(marker, &mut query);
            query.push('&');
        }
        query += &format!("max-keys={PAGE_KEYS}");
        Request::new(Method::Get, self.endpoint.clone(), format!("{}/", self.base_path), query)
    }

    /// Where a bucket is reached.
    pub fn endpoint_of(&self, bucket: &str) -> Endpoint {
        endpoint_of(&self.endpoint, self.addressing, bucket)
    }

    pub(crate) fn request(&self, method: Method, bucket: &str, key: &str, query: String) -> Request {
        bucket_request(method, (&self.endpoint, &self.base_path, self.addressing), (bucket, key), query)
    }
}

/// The public endpoint of a region (reference/oss.md §6; Go SDK v2, oss/endpoints.go).
fn public_host(region: &str) -> String {
    format!("oss-{region}.aliyuncs.com")
}

/// A region as signatures want it: without the `oss-` of the console's and ossutil's form.
fn bare_region(region: &str) -> &str {
    region.strip_prefix("oss-").unwrap_or(region)
}

fn with_scheme(endpoint: &str) -> String {
    let endpoint = endpoint.trim();
    if endpoint.contains("://") {
        return endpoint.to_owned();
    }
    let local = Endpoint::from_authority(Scheme::Http, endpoint.split('/').next().unwrap_or(endpoint))
        .is_ok_and(|endpoint| endpoint.is_loopback());
    // Nobody has a certificate for this machine's own names.
    format!("{}://{endpoint}", if local { "http" } else { "https" })
}

/// What the host of an endpoint tells.
#[derive(Debug, PartialEq, Eq)]
struct HostParts<'a> {
    kind: EndpointKind,
    region: Option<&'a str>,
    product: &'static str,
    /// What stands before the endpoint proper.
    bucket: Option<&'a str>,
}

impl<'a> HostParts<'a> {
    fn of(host: &'a str) -> HostParts<'a> {
        let custom = HostParts { kind: EndpointKind::Custom, region: None, product: "oss", bucket: None };
        let Some(own) = host.strip_suffix(".aliyuncs.com") else { return custom };
        let (rest, last) = own.rsplit_once('.').map_or((None, own), |(rest, last)| (Some(rest), last));
        let split = |rest: &'a str| match rest.rsplit_once('.') {
            Some((bucket, label)) => (Some(bucket), label),
            None => (None, rest),
        };
        match (last, rest) {
            ("oss-accelerate" | "oss-accelerate-overseas", bucket) => {
                HostParts { kind: EndpointKind::Accelerate, bucket, ..custom }
            }
            ("oss-cloudbox", Some(rest)) => {
                let (bucket, cloudbox) = split(rest.rsplit_once('.').map_or(rest, |(box_id, _)| box_id));
                HostParts { region: Some(cloudbox), product: "oss-cloudbox", bucket, ..custom }
            }
            ("oss", Some(rest)) => {
                let (bucket, label) = split(rest);
                let (kind, region) = kind_of(label);
                HostParts { kind, region: Some(region), bucket, ..custom }
            }
            ("oss-data-acc", Some(rest)) => {
                let (bucket, label) = split(rest);
                let zone = label.strip_suffix("-internal").unwrap_or(label);
                // A zone is its region and a letter: cn-beijing-h.
                let region = zone.rsplit_once('-').map(|(region, _)| region);
                HostParts { kind: EndpointKind::Internal, region, bucket, ..custom }
            }
            (label, bucket) => match (label.strip_prefix("vpc100-oss-"), label.strip_prefix("oss-")) {
                // An older name of the internal endpoint.
                (Some(region), _) => {
                    HostParts { kind: EndpointKind::Internal, region: Some(region), bucket, ..custom }
                }
                (None, Some(label)) => {
                    let (kind, region) = kind_of(label);
                    HostParts { kind, region: Some(region), bucket, ..custom }
                }
                (None, None) => custom,
            },
        }
    }
}

fn kind_of(label: &str) -> (EndpointKind, &str) {
    match label.strip_suffix("-internal") {
        Some(region) => (EndpointKind::Internal, region),
        None => (EndpointKind::Public, label),
    }
}

/// An endpoint that an origin names, as a user may give it to us; `None` for what is no host.
pub(crate) fn named_endpoint(text: &str) -> Option<String> {
    let host = text.trim();
    Endpoint::from_authority(Scheme::Https, host).ok().map(|_| shown(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(endpoint: Option<&str>, region: Option<&str>, expected: (&str, &str, EndpointKind)) {
        let oss = Oss::new(endpoint, region, Addressing::Auto).expect("a service");
        let found = (oss.endpoint.to_string(), oss.region.as_str(), oss.kind);
        assert_eq!((found.0.as_str(), found.1, found.2), expected, "{endpoint:?} {region:?}");
    }

    #[test]
    fn endpoints_and_regions() {
        use EndpointKind::{Accelerate, Custom, Internal, Public};
        let rows = [
            (None, Some("cn-hangzhou"), ("https://oss-cn-hangzhou.aliyuncs.com:443", "cn-hangzhou", Public)),
            (None, Some("oss-us-west-1"), ("https://oss-us-west-1.aliyuncs.com:443", "us-west-1", Public)),
            (
                Some("oss-cn-beijing.aliyuncs.com"),
                None,
                ("https://oss-cn-beijing.aliyuncs.com:443", "cn-beijing", Public),
            ),
            (
                Some("http://oss-cn-beijing-internal.aliyuncs.com"),
                None,
                ("http://oss-cn-beijing-internal.aliyuncs.com:80", "cn-beijing", Internal),
            ),
            (
                Some("vpc100-oss-cn-beijing.aliyuncs.com"),
                None,
                ("https://vpc100-oss-cn-beijing.aliyuncs.com:443", "cn-beijing", Internal),
            ),
            (
                Some("cn-hangzhou.oss.aliyuncs.com"),
                None,
                ("https://cn-hangzhou.oss.aliyuncs.com:443", "cn-hangzhou", Public),
            ),
            (
                Some("cn-hangzhou-internal.oss.aliyuncs.com"),
                None,
                ("https://cn-hangzhou-internal.oss.aliyuncs.com:443", "cn-hangzhou", Internal),
            ),
            (
                Some("cn-beijing-h-internal.oss-data-acc.aliyuncs.com"),
                None,
                ("https://cn-beijing-h-internal.oss-data-acc.aliyuncs.com:443", "cn-beijing", Internal),
            ),
            (
                Some("oss-accelerate-overseas.aliyuncs.com"),
                Some("ap-southeast-1"),
                ("https://oss-accelerate-overseas.aliyuncs.com:443", "ap-southeast-1", Accelerate),
            ),
            (
                Some("cb-123.cn-hangzhou.oss-cloudbox.aliyuncs.com"),
                None,
                ("https://cb-123.cn-hangzhou.oss-cloudbox.aliyuncs.com:443", "cb-123", Custom),
            ),
            (
                Some("https://oss.example.com:8443/base/"),
                Some("x"),
                ("https://oss.example.com:8443", "x", Custom),
            ),
            (Some("127.0.0.1:9000"), None, ("http://127.0.0.1:9000", "cn-hangzhou", Custom)),
            (Some("localhost"), None, ("http://localhost:80", "cn-hangzhou", Custom)),
            (Some("[::1]:9000"), None, ("http://[::1]:9000", "cn-hangzhou", Custom)),
            (Some("10.0.0.1"), None, ("https://10.0.0.1:443", "cn-hangzhou", Custom)),
            (Some("https://127.0.0.1"), None, ("https://127.0.0.1:443", "cn-hangzhou", Custom)),
        ];
        for (endpoint, region, expected) in rows {
            check(endpoint, region, expected);
        }
    }

    #[test]
    fn no_services() {
        let rows = [
            (None, None, "needs a region or an endpoint"),
            (None, Some("a b"), "is no region"),
            (Some("bucket.oss-cn-beijing.aliyuncs.com"), None, "write oss-cn-beijing.aliyuncs.com"),
            (Some("https://a.b.oss-accelerate.aliyuncs.com"), None, "write oss-accelerate.aliyuncs.com"),
            (
                Some("b.cb-123.cn-hangzhou.oss-cloudbox.aliyuncs.com"),
                None,
                "write cb-123.cn-hangzhou.oss-cloudbox.aliyuncs.com",
            ),
            (Some("b.cn-hangzhou.oss.aliyuncs.com"), None, "write cn-hangzhou.oss.aliyuncs.com"),
            (Some("ftp://oss.example.com"), None, "ftp://"),
            (Some("user:hunter2@oss.example.com"), None, "credentials"),
            (Some(""), None, "is no host"),
        ];
        for (endpoint, region, word) in rows {
            let error = Oss::new(endpoint, region, Addressing::Auto).expect_err(word).to_string();
            assert!(error.contains(word) && !error.contains("hunter2"), "{endpoint:?}: {error}");
        }
    }

    #[test]
    fn the_internal_endpoint_is_known() {
        let internal =
            |endpoint: &str| Oss::new(Some(endpoint), None, Addressing::Auto).unwrap().internal_host();
        let expected = Some("oss-cn-beijing-internal.aliyuncs.com".to_owned());
        assert_eq!(internal("oss-cn-beijing.aliyuncs.com"), expected);
        for endpoint in ["oss-cn-beijing-internal.aliyuncs.com", "oss-accelerate.aliyuncs.com", "127.0.0.1"] {
            assert_eq!(internal(endpoint), None, "{endpoint}");
        }
    }

    #[test]
    fn addressing() {
        let rows = [
            ("oss-cn-hangzhou.aliyuncs.com", "bucket", "https://bucket.oss-cn-hangzhou.aliyuncs.com/a%20b/c"),
            ("http://127.0.0.1:9000", "bucket", "http://127.0.0.1:9000/bucket/a%20b/c"),
            ("localhost:9000", "bucket", "http://localhost:9000/bucket/a%20b/c"),
            ("http://oss.example.com/base", "bucket", "http://bucket.oss.example.com/base/a%20b/c"),
        ];
        for (endpoint, bucket, url) in rows {
            let oss = Oss::new(Some(endpoint), None, Addressing::Auto).unwrap();
            assert_eq!(oss.get_object(bucket, "a b/c").url(), url);
        }
        let path = Oss::new(Some("oss-cn-hangzhou.aliyuncs.com"), None, Addressing::Path).unwrap();
        assert_eq!(path.get_object("b", "k").url(), "https://oss-cn-hangzhou.aliyuncs.com/b/k");
    }

    #[test]
    fn calls() {
        let oss = Oss::new(Some("http://h:1"), None, Addressing::Path).unwrap();
        assert_eq!(oss.get_object("b", "k").header("x-oss-range-behavior"), Some("standard"));
        assert_eq!(oss.head_object("b", "k").method, Method::Head);
        let page = oss.list_objects_v2("b", "a b/", Some('/'), &PageStart::Token("t+=".into()), None);
        let query = "continuation-token=t%2B%3D&delimiter=%2F&encoding-type=url&list-type=2&max-keys=1000&prefix=a%20b%2F";
        assert_eq!(page.target(), format!("/b/?{query}"));
        assert_eq!(oss.list_buckets(None).target(), "/?max-keys=1000");
        assert_eq!(oss.list_buckets(Some("a/b")).target(), "/?marker=a%2Fb&max-keys=1000");
    }

    #[test]
    fn endpoints_that_an_origin_names() {
        let rows = [
            ("oss-cn-beijing.aliyuncs.com", Some("oss-cn-beijing.aliyuncs.com")),
            (" oss-cn-beijing.aliyuncs.com\n", Some("oss-cn-beijing.aliyuncs.com")),
            ("", None),
            ("rm -rf /", None),
            ("http://x", None),
        ];
        for (text, expected) in rows {
            assert_eq!(named_endpoint(text).as_deref(), expected, "{text}");
        }
    }
}
