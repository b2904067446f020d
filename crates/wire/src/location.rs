//! Locations: what a user types to name an object, `s3://bucket/key`, `oss://bucket/key` or
//! `https://host/path`.

use std::fmt;

use crate::endpoint::{Endpoint, Scheme, printable, shown};
use crate::percent;

/// Where an object lies. Displayed as it was typed, with passwords and the secrets of presigned queries
/// masked.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// The key is taken as typed, never decoded. It is empty where the bucket itself is meant, and may end in
    /// '/'.
    S3 { bucket: String, key: String },
    /// An object of Alibaba Cloud OSS, by its own protocol.
    Oss { bucket: String, key: String },
    /// Any URL of a plain HTTP origin, presigned ones included.
    Http { url: HttpUrl },
}

/// A plain URL. Its `Debug` is its `Display`: masked.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HttpUrl {
    pub endpoint: Endpoint,
    /// Encoded, as given; starts with '/'. The fragment is gone.
    pub path_and_query: String,
    /// What stood before '@'.
    pub user_info: Option<UserInfo>,
    /// Decoded last segment of the path.
    name: String,
}

/// User and password of a URL, percent-decoded. `Debug` shows neither.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UserInfo {
    pub user: String,
    pub password: Option<String>,
}

/// What is wrong with a location or an endpoint, and what to write instead. Shows no secret of the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    #[error("this is no location: write s3://{text}, oss://{text} or https://HOST/PATH")]
    NotALocation { text: String },
    #[error("{scheme}:// is not known: write s3://BUCKET/KEY, oss://BUCKET/KEY or https://HOST/PATH")]
    UnknownScheme { scheme: String },
    #[error("this has too few slashes: write {scheme}://{rest}")]
    Slashes { scheme: &'static str, rest: String },
    #[error("no bucket in the location: write {scheme}://BUCKET/KEY")]
    NoBucket { scheme: &'static str },
    #[error("'{bucket}' is no bucket name: it has letters, digits, '-', '.' and '_', at most 255 of them")]
    BadBucket { bucket: String },
    #[error("'{host}' is no host: write a name or an address, an IPv6 address in brackets")]
    BadHost { host: String },
    #[error("'{port}' is no port: write a number from 1 to 65535")]
    BadPort { port: String },
    #[error("'{url}' has no scheme: write http://{url} or https://{url}")]
    NoScheme { url: String },
    #[error("{scheme}:// is no endpoint: write http:// or https:// and a host")]
    EndpointScheme { scheme: String },
    #[error("no host before the first '/': write a '/' in a user or password as %2F")]
    SlashInUserInfo,
    #[error(
        "{scheme}:// carries no credentials: write {scheme}://BUCKET/KEY, and the keys into the environment or a profile"
    )]
    BucketCredentials { scheme: &'static str },
    #[error("an endpoint carries no credentials: leave out what stands before the '@'")]
    EndpointCredentials,
    #[error("an endpoint carries no query: leave out what stands behind the '?' or '#'")]
    EndpointQuery,
    #[error("'{region}' is no region: write something like eu-west-1 or cn-hangzhou")]
    BadRegion { region: String },
    #[error("'{text}' is no addressing: write auto, path or virtual")]
    BadAddressing { text: String },
    #[error("'{text}' is no signature: write v4 or v1")]
    BadSignature { text: String },
    #[error("oss:// needs a region or an endpoint")]
    NoOssEndpoint,
    #[error("the endpoint has the bucket '{bucket}' in front: write {host}")]
    BucketInEndpoint { bucket: String, host: String },
}

impl Location {
    /// Parses `s3://bucket`, `s3://bucket/key`, the same with `oss`, and
    /// `http[s]://[user[:password]@]host[:port][/path][?query]`.
    ///
    /// # Errors
    /// Says what is wrong and what to write instead.
    pub fn parse(text: &str) -> Result<Location, LocationError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(no_scheme(text));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "s3" => parse_bucket("s3", rest).map(|(bucket, key)| Location::S3 { bucket, key }),
            "oss" => parse_bucket("oss", rest).map(|(bucket, key)| Location::Oss { bucket, key }),
            "http" => Ok(Location::Http { url: HttpUrl::parse_rest(Scheme::Http, rest)? }),
            "https" => Ok(Location::Http { url: HttpUrl::parse_rest(Scheme::Https, rest)? }),
            _ => Err(LocationError::UnknownScheme { scheme: shown(scheme) }),
        }
    }

    /// The last segment of the path, decoded, for `cp URL FOLDER/`; `""` where there is none, and for `.` and
    /// `..`, which would name another folder.
    pub fn name(&self) -> &str {
        match self {
            Location::S3 { key, .. } | Location::Oss { key, .. } => file_name(key),
            Location::Http { url } => &url.name,
        }
    }

    /// The key in its bucket, or the path of the URL, encoded as given and without its query.
    pub fn key(&self) -> &str {
        match self {
            Location::S3 { key, .. } | Location::Oss { key, .. } => key,
            Location::Http { url } => url.path(),
        }
    }

    /// Bucket and key, where it has them.
    pub fn in_bucket(&self) -> Option<(&str, &str)> {
        match self {
            Location::S3 { bucket, key } | Location::Oss { bucket, key } => Some((bucket, key)),
            Location::Http { .. } => None,
        }
    }

    /// The bucket; `None` for a plain URL, which has nothing that could be listed.
    pub fn bucket(&self) -> Option<&str> {
        self.in_bucket().map(|(bucket, _)| bucket)
    }

    /// Another object of the same bucket; `None` for a plain URL.
    pub fn with_key(&self, key: impl Into<String>) -> Option<Location> {
        match self {
            Location::S3 { bucket, .. } => Some(Location::S3 { bucket: bucket.clone(), key: key.into() }),
            Location::Oss { bucket, .. } => Some(Location::Oss { bucket: bucket.clone(), key: key.into() }),
            Location::Http { .. } => None,
        }
    }

    /// `s3`, `oss`, `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        match self {
            Location::S3 { .. } => "s3",
            Location::Oss { .. } => "oss",
            Location::Http { url } => url.endpoint.scheme.name(),
        }
    }
}

impl HttpUrl {
    /// A URL without user and password. What may not stand in a request line is encoded; the rest stays as
    /// given.
    pub fn new(endpoint: Endpoint, path_and_query: &str) -> HttpUrl {
        let target = path_and_query.split('#').next().unwrap_or(path_and_query);
        let slash = if target.starts_with('/') { "" } else { "/" };
        let path_and_query = format!("{slash}{}", printable(target));
        let name = decoded_name(path_of(&path_and_query));
        HttpUrl { endpoint, path_and_query, user_info: None, name }
    }

    /// The encoded path, without the query.
    pub fn path(&self) -> &str {
        path_of(&self.path_and_query)
    }

    /// Where a redirect's `Location` header leads: an absolute URL, `//host/path`, `/path` or a relative
    /// path, whose `..` are left for the origin to resolve.
    ///
    /// User and password go along to the same endpoint only: another host must not see them.
    ///
    /// # Errors
    /// A URL that [`Location::parse`] would refuse.
    pub fn follow(&self, location: &str) -> Result<HttpUrl, LocationError> {
        let location = location.trim();
        let mut url = if let Some((scheme, rest)) = absolute(location) {
            HttpUrl::parse_rest(scheme?, rest)?
        } else if let Some(rest) = location.strip_prefix("//") {
            HttpUrl::parse_rest(self.endpoint.scheme, rest)?
        } else if location.starts_with('/') {
            HttpUrl::new(self.endpoint.clone(), location)
        } else if location.starts_with('?') {
            HttpUrl::new(self.endpoint.clone(), &format!("{}{location}", self.path()))
        } else {
            let folder_bytes = self.path().rfind('/').map_or(0, |slash| slash + 1);
            HttpUrl::new(self.endpoint.clone(), &format!("{}{location}", &self.path()[..folder_bytes]))
        };
        if url.endpoint == self.endpoint && url.user_info.is_none() {
            url.user_info = self.user_info.clone();
        }
        Ok(url)
    }

    /// Parses what stands behind `http://`.
    fn parse_rest(scheme: Scheme, rest: &str) -> Result<HttpUrl, LocationError> {
        let authority_bytes = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path_and_query) = rest.split_at(authority_bytes);
        let (user_info, host) = match authority.rsplit_once('@') {
            Some((user_info, host)) => (Some(UserInfo::parse(user_info)), host),
            None => (None, authority),
        };
        let endpoint = Endpoint::from_authority(scheme, host).map_err(|error| {
            // The pieces of a password that a '/' cut in two are no host and no port to show.
            if path_and_query.contains('@') { LocationError::SlashInUserInfo } else { error }
        })?;
        Ok(HttpUrl { user_info, ..HttpUrl::new(endpoint, path_and_query) })
    }
}

impl UserInfo {
    fn parse(text: &str) -> UserInfo {
        let decode = |text: &str| String::from_utf8_lossy(&percent::decode(text)).into_owned();
        match text.split_once(':') {
            Some((user, password)) => UserInfo { user: decode(user), password: Some(decode(password)) },
            None => UserInfo { user: decode(text), password: None },
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Http { url } => write!(out, "{url}"),
            Location::S3 { bucket, key } | Location::Oss { bucket, key } => {
                let slash = if key.is_empty() { "" } else { "/" };
                write!(out, "{}://{bucket}{slash}{key}", self.scheme())
            }
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Location({self})")
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://", self.endpoint.scheme.name())?;
        match &self.user_info {
            Some(UserInfo { user, password: Some(password) }) if !password.is_empty() => {
                let mut encoded = String::new();
                percent::encode_query(user, &mut encoded);
                write!(out, "{encoded}:***@")?;
            }
            // A user without a password is often a token: it is no name to show.
            Some(_) => out.write_str("***@")?,
            None => {}
        }
        write!(out, "{}{}", self.endpoint.host_header(), masked_target(&self.path_and_query))
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "HttpUrl({self})")
    }
}

impl fmt::Debug for UserInfo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("UserInfo(***)")
    }
}

/// A target as it may be shown: the values of a presigned query's secrets, and of whatever else is named like
/// one, are `***`.
pub(crate) fn masked_target(path_and_query: &str) -> String {
    let Some((path, query)) = path_and_query.split_once('?') else {
        return path_and_query.into();
    };
    let parameters: Vec<String> = query.split('&').map(masked_parameter).collect();
    format!("{path}?{}", parameters.join("&"))
}

fn masked_parameter(parameter: &str) -> String {
    match parameter.split_once('=') {
        Some((name, value)) if !value.is_empty() && is_secret(name) => format!("{name}=***"),
        _ => parameter.into(),
    }
}

/// Whether a query parameter's value lets its reader in. Names are compared decoded and in lower case: S3
/// (V4, V2), OSS, Google and Azure presigned URLs, and the usual names of tokens.
fn is_secret(name: &str) -> bool {
    const ENDINGS: [&str; 10] = [
        "signature",
        "credential",
        "token",
        "accesskeyid",
        "googleaccessid",
        "password",
        "secret",
        "apikey",
        "api_key",
        "api-key",
    ];
    let name = String::from_utf8_lossy(&percent::decode(name)).to_ascii_lowercase();
    name == "sig" || name == "auth" || name == "key" || ENDINGS.iter().any(|ending| name.ends_with(ending))
}

fn parse_bucket(scheme: &'static str, rest: &str) -> Result<(String, String), LocationError> {
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if bucket.is_empty() {
        return Err(LocationError::NoBucket { scheme });
    }
    check_bucket(bucket).map_err(|error| {
        // As rclone and others write it. A '/' in the secret, which many have, cuts it in two: neither half
        // is shown.
        let has_keys = bucket.contains(':') && rest.contains('@');
        if has_keys { LocationError::BucketCredentials { scheme } } else { error }
    })?;
    Ok((bucket.into(), key.into()))
}

/// Refuses only what could not stand in a URL: servers differ in what else they allow, and say so themselves.
fn check_bucket(bucket: &str) -> Result<(), LocationError> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let usable = bucket.len() <= 255 && bucket.bytes().all(known) && bucket != "." && bucket != "..";
    if usable { Ok(()) } else { Err(LocationError::BadBucket { bucket: shown(bucket) }) }
}

/// The error for a text without `://`: the nearest location that has it.
fn no_scheme(text: &str) -> LocationError {
    for scheme in ["s3", "oss", "https", "http"] {
        if let Some(rest) = text.strip_prefix(scheme).and_then(|rest| rest.strip_prefix(':')) {
            let rest = shown(rest.trim_start_matches('/'));
            return LocationError::Slashes { scheme, rest };
        }
    }
    LocationError::NotALocation { text: shown(text.trim_start_matches('/')) }
}

/// Scheme and rest of an absolute URL; `None` for a relative one. A scheme has no '/' in front of its colon.
fn absolute(location: &str) -> Option<(Result<Scheme, LocationError>, &str)> {
    let (scheme, rest) = location.split_once("://")?;
    if scheme.contains(['/', '?', '#']) {
        return None;
    }
    let known = match scheme.to_ascii_lowercase().as_str() {
        "http" => Ok(Scheme::Http),
        "https" => Ok(Scheme::Https),
        _ => Err(LocationError::UnknownScheme { scheme: shown(scheme) }),
    };
    Some((known, rest))
}

fn path_of(path_and_query: &str) -> &str {
    path_and_query.split('?').next().unwrap_or(path_and_query)
}

/// What stands behind the last '/', unless a file could not be called that.
fn file_name(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    if matches!(name, "." | "..") { "" } else { name }
}

/// The decoded last segment; still encoded where decoding would make a path of it (`..%2Fx`) or no text.
fn decoded_name(path: &str) -> String {
    let encoded = file_name(path);
    match String::from_utf8(percent::decode(encoded).into_owned()) {
        Ok(name) if name.contains(['/', '\0']) => encoded.into(),
        Ok(name) => file_name(&name).into(),
        Err(_) => encoded.into(),
    }
}

#[cfg(test)]
#[path = "location_tests.rs"]
mod tests;
