//! What an object is to have beside its bytes, and when it may be written: headers of PUT, of the start of
//! an upload and of a copy.

use std::collections::HashSet;

use crate::head::quoted;
use crate::location::Location;
use crate::percent;
use crate::request::Request;
use crate::words::{excerpt, one_line};

/// S3 counts names and values together (userguide/UsingMetadata).
const S3_METADATA_BYTES: usize = 2 << 10;
/// The limit of OSS (EC 0011-00000002).
const OSS_METADATA_BYTES: usize = 8 << 10;
/// The limits of tags, alike in S3 and OSS.
const MOST_TAGS: usize = 10;
const TAG_KEY_CHARACTERS: usize = 128;
const TAG_VALUE_CHARACTERS: usize = 256;
/// Characters of a name that an error shows.
const SHOWN: usize = 60;

/// What an object is to have beside its bytes. What is `None` or empty is left to the origin.
///
/// Values go out as they are, but for the spellings that name one thing in both dialects. Either spelling
/// serves both, in any case of letters:
///
/// | | S3 | OSS |
/// |---|---|---|
/// | storage class | `STANDARD` | `Standard` |
/// | | `STANDARD_IA` | `IA` |
/// | encryption | `AES256` | `AES256` |
/// | | `aws:kms` | `KMS` |
///
/// Archives differ in price and in how they are restored: no other class is translated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectOptions {
    pub content_type: Option<String>,
    pub cache_control: Option<String>,
    pub content_disposition: Option<String>,
    pub content_encoding: Option<String>,
    pub content_language: Option<String>,
    /// An HTTP date.
    pub expires: Option<String>,
    /// S3: `STANDARD`, `GLACIER_IR`, …; OSS: `Standard`, `IA`, `Archive`, `ColdArchive`, `DeepColdArchive`.
    pub storage_class: Option<String>,
    /// A canned access list: `private`, `public-read`, `public-read-write`; S3: `bucket-owner-full-control`,
    /// …; OSS: `default`.
    pub acl: Option<String>,
    /// Encryption by the origin. S3: `AES256`, `aws:kms`, `aws:kms:dsse`; OSS: `AES256`, `KMS`, `SM4`.
    pub sse: Option<String>,
    /// The key for an encryption by KMS: its id, for S3 also its ARN or alias.
    pub sse_kms_key_id: Option<String>,
    /// Names without `x-amz-meta-` and `x-oss-meta-`, and values. Origins keep names in lower case.
    pub metadata: Vec<(String, String)>,
    /// Keys and values, not encoded.
    pub tags: Vec<(String, String)>,
}

/// When a write may happen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    #[default]
    None,
    /// Only where no object has the key. An object that exists is refused with 412 by S3, and with
    /// `FileAlreadyExists` by OSS, which does not look at the condition in a bucket that keeps versions.
    Absent,
    /// Only where the object has this ETag, quotes included. OSS has no such condition of a write: see
    /// [`Condition::is_kept_by_oss`].
    Matches(String),
}

/// Why options cannot be sent, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    #[error("'{name}' is no name of metadata: it has letters, digits and '-'")]
    MetadataName { name: String },
    #[error("'{name}' is no name of metadata for OSS: it has letters, digits and '-', nothing else")]
    OssMetadataName { name: String },
    #[error("the metadata '{name}' is given twice: upper and lower case are one")]
    MetadataTwice { name: String },
    #[error(
        "the value of the metadata '{name}' has '{character}', which no header carries: write it in ASCII, \
         for example percent-encoded"
    )]
    MetadataValue { name: String, character: String },
    #[error("the metadata has {bytes} bytes, names and values together: at most {most} are kept")]
    MetadataTooLarge { bytes: usize, most: usize },
    #[error("{header} has '{character}', which no header carries: write it in ASCII")]
    HeaderValue { header: &'static str, character: String },
    #[error("'{text}' is no {what}: it is one word of ASCII letters, digits and signs")]
    Word { what: &'static str, text: String },
    #[error("a KMS key needs encryption by KMS: write 'aws:kms' for S3, 'KMS' for OSS")]
    KeyWithoutKms,
    #[error("an object has {count} tags: at most 10 are kept")]
    TooManyTags { count: usize },
    #[error("the key of the tag '{key}' has {characters} characters: write 1 to 128")]
    TagKey { key: String, characters: usize },
    #[error("the value of the tag '{key}' has {characters} characters: write at most 256")]
    TagValue { key: String, characters: usize },
    #[error("the tag '{key}' is given twice")]
    TagTwice { key: String },
}

/// The names that a dialect has for the headers of options.
pub(crate) struct HeaderNames {
    metadata: &'static str,
    tags: &'static str,
    acl: &'static str,
    storage_class: &'static str,
    sse: &'static str,
    sse_key: &'static str,
    /// Spellings of the other dialect, and of this one.
    spellings: &'static [(&'static str, &'static str)],
}

pub(crate) const S3_HEADERS: HeaderNames = HeaderNames {
    metadata: "x-amz-meta-",
    tags: "x-amz-tagging",
    acl: "x-amz-acl",
    storage_class: "x-amz-storage-class",
    sse: "x-amz-server-side-encryption",
    sse_key: "x-amz-server-side-encryption-aws-kms-key-id",
    spellings: &[
        ("Standard", "STANDARD"),
        ("IA", "STANDARD_IA"),
        ("STANDARD_IA", "STANDARD_IA"),
        ("AES256", "AES256"),
        ("KMS", "aws:kms"),
        ("aws:kms", "aws:kms"),
    ],
};

pub(crate) const OSS_HEADERS: HeaderNames = HeaderNames {
    metadata: "x-oss-meta-",
    tags: "x-oss-tagging",
    acl: "x-oss-object-acl",
    storage_class: "x-oss-storage-class",
    sse: "x-oss-server-side-encryption",
    sse_key: "x-oss-server-side-encryption-key-id",
    spellings: &[
        ("STANDARD", "Standard"),
        ("STANDARD_IA", "IA"),
        ("IA", "IA"),
        ("AES256", "AES256"),
        ("aws:kms", "KMS"),
        ("KMS", "KMS"),
    ],
};

impl ObjectOptions {
    /// Whether S3 can be sent these options. Ask before a request is made of them: requests carry what they
    /// can, without an error.
    ///
    /// Values in other letters than ASCII are refused, as by boto3 and the AWS CLI. A header could carry them
    /// in the form of RFC 2047, but hardly any reader decodes it.
    ///
    /// # Errors
    /// The first option that a header cannot carry, that is over a limit, or that contradicts another.
    pub fn check_s3(&self) -> Result<(), OptionsError> {
        self.check(S3_METADATA_BYTES)
    }

    /// Whether OSS can be sent these options. It takes fewer names of metadata than S3, and more of it.
    ///
    /// # Errors
    /// As [`ObjectOptions::check_s3`], and for a name of metadata that has more than letters, digits and '-'
    /// (EC 0011-00000004).
    pub fn check_oss(&self) -> Result<(), OptionsError> {
        self.check(OSS_METADATA_BYTES)?;
        let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        match self.metadata.iter().find(|(name, _)| !plain(name)) {
            Some((name, _)) => Err(OptionsError::OssMetadataName { name: shown(name) }),
            None => Ok(()),
        }
    }

    fn check(&self, metadata_bytes: usize) -> Result<(), OptionsError> {
        for (header, value) in self.content_headers() {
            if let Some(character) = value.and_then(unprintable) {
                return Err(OptionsError::HeaderValue { header, character });
            }
        }
        check_word("storage class", self.storage_class.as_deref())?;
        check_word("access list", self.acl.as_deref())?;
        check_word("encryption", self.sse.as_deref())?;
        check_word("KMS key", self.sse_kms_key_id.as_deref())?;
        let by_kms = self.sse.as_deref().is_some_and(|sse| sse.to_ascii_lowercase().contains("kms"));
        if self.sse_kms_key_id.is_some() && !by_kms {
            return Err(OptionsError::KeyWithoutKms);
        }
        self.check_metadata(metadata_bytes)?;
        self.check_tags()
    }

    fn check_metadata(&self, most: usize) -> Result<(), OptionsError> {
        let (mut seen, mut bytes) = (HashSet::new(), 0);
        for (name, value) in &self.metadata {
            if !is_token(name) {
                return Err(OptionsError::MetadataName { name: shown(name) });
            }
            if let Some(character) = unprintable(value) {
                return Err(OptionsError::MetadataValue { name: shown(name), character });
            }
            if !seen.insert(name.to_ascii_lowercase()) {
                return Err(OptionsError::MetadataTwice { name: shown(name) });
            }
            bytes += name.len() + value.len();
        }
        if bytes > most { Err(OptionsError::MetadataTooLarge { bytes, most }) } else { Ok(()) }
    }

    fn check_tags(&self) -> Result<(), OptionsError> {
        if self.tags.len() > MOST_TAGS {
            return Err(OptionsError::TooManyTags { count: self.tags.len() });
        }
        let mut seen = HashSet::new();
        for (key, value) in &self.tags {
            let (of_key, of_value) = (key.chars().count(), value.chars().count());
            if of_key == 0 || of_key > TAG_KEY_CHARACTERS {
                return Err(OptionsError::TagKey { key: shown(key), characters: of_key });
            }
            if of_value > TAG_VALUE_CHARACTERS {
                return Err(OptionsError::TagValue { key: shown(key), characters: of_value });
            }
            if !seen.insert(key) {
                return Err(OptionsError::TagTwice { key: shown(key) });
            }
        }
        Ok(())
    }

    /// Takes over a header that describes the content, by its name in lower case; others are passed over.
    pub fn describe(&mut self, header: &str, value: &str) {
        let place = match header {
            "content-type" => &mut self.content_type,
            "cache-control" => &mut self.cache_control,
            "content-disposition" => &mut self.content_disposition,
            "content-encoding" => &mut self.content_encoding,
            "content-language" => &mut self.content_language,
            "expires" => &mut self.expires,
            _ => return,
        };
        *place = Some(value.to_owned());
    }

    /// These, and where they say nothing what `described` says. Names of metadata that only that has are
    /// kept.
    #[must_use]
    pub fn over(self, described: ObjectOptions) -> ObjectOptions {
        let given = self.metadata.clone();
        let is_given = |name: &str| given.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        let kept = described.metadata.into_iter().filter(|(name, _)| !is_given(name));
        ObjectOptions {
            content_type: self.content_type.or(described.content_type),
            cache_control: self.cache_control.or(described.cache_control),
            content_disposition: self.content_disposition.or(described.content_disposition),
            content_encoding: self.content_encoding.or(described.content_encoding),
            content_language: self.content_language.or(described.content_language),
            expires: self.expires.or(described.expires),
            storage_class: self.storage_class.or(described.storage_class),
            acl: self.acl.or(described.acl),
            sse: self.sse.or(described.sse),
            sse_kms_key_id: self.sse_kms_key_id.or(described.sse_kms_key_id),
            metadata: self.metadata.into_iter().chain(kept).collect(),
            tags: if self.tags.is_empty() { described.tags } else { self.tags },
        }
    }

    fn content_headers(&self) -> [(&'static str, Option<&str>); 6] {
        [
            ("content-type", self.content_type.as_deref()),
            ("cache-control", self.cache_control.as_deref()),
            ("content-disposition", self.content_disposition.as_deref()),
            ("content-encoding", self.content_encoding.as_deref()),
            ("content-language", self.content_language.as_deref()),
            ("expires", self.expires.as_deref()),
        ]
    }

    /// Sets the headers that describe the content: those of HTTP, and the metadata. A name that is no token
    /// is left out, since it could begin another header.
    pub(crate) fn put_metadata(&self, request: &mut Request, names: &HeaderNames) {
        for (header, value) in self.content_headers() {
            set_if(request, header, value);
        }
        for (name, value) in self.metadata.iter().filter(|(name, _)| is_token(name)) {
            request.set(&format!("{}{name}", names.metadata), value.as_str());
        }
    }

    /// Sets the header of the tags: `a=1&b=2`, encoded as a query.
    pub(crate) fn put_tags(&self, request: &mut Request, names: &HeaderNames) {
        let mut written = String::new();
        for (key, value) in &self.tags {
            if !written.is_empty() {
                written.push('&');
            }
            percent::encode_query(key, &mut written);
            written.push('=');
            percent::encode_query(value, &mut written);
        }
        if !written.is_empty() {
            request.set(names.tags, written);
        }
    }

    /// Sets the headers of how the object is kept: class and encryption. A copy takes neither from its
    /// source.
    pub(crate) fn put_storage(&self, request: &mut Request, names: &HeaderNames) {
        set_if(request, names.storage_class, self.storage_class.as_deref().map(|text| names.spelt(text)));
        set_if(request, names.sse, self.sse.as_deref().map(|text| names.spelt(text)));
        set_if(request, names.sse_key, self.sse_kms_key_id.as_deref());
    }

    /// Sets the header of the access list.
    pub(crate) fn put_acl(&self, request: &mut Request, names: &HeaderNames) {
        set_if(request, names.acl, self.acl.as_deref());
    }
}

impl Condition {
    /// That the object at `location` still has this ETag, with or without its quotes. `None` where no write
    /// can ask for that: OSS has no such condition, and a weak ETag never matches (RFC 9110 §13.1.1).
    pub fn unchanged(location: &Location, etag: &str) -> Option<Condition> {
        let is_kept = !matches!(location, Location::Oss { .. }) && !etag.starts_with("W/");
        is_kept.then(|| Condition::Matches(quoted(etag).into_owned()))
    }

    /// Whether OSS has this condition of a write. A request to it leaves `Matches` out: look at the object
    /// before the write, and accept that another writer may come between.
    pub fn is_kept_by_oss(&self) -> bool {
        !matches!(self, Condition::Matches(_))
    }

    pub(crate) fn put_s3(&self, request: &mut Request) {
        match self {
            Condition::None => {}
            Condition::Absent => request.set("if-none-match", "*"),
            Condition::Matches(etag) => request.set("if-match", etag.as_str()),
        }
    }

    pub(crate) fn put_oss(&self, request: &mut Request) {
        if *self == Condition::Absent {
            request.set("x-oss-forbid-overwrite", "true");
        }
    }
}

impl HeaderNames {
    /// A value as this dialect spells it.
    fn spelt<'a>(&self, text: &'a str) -> &'a str {
        let known = self.spellings.iter().find(|(spelling, _)| spelling.eq_ignore_ascii_case(text));
        known.map_or(text, |(_, own)| own)
    }
}

fn set_if(request: &mut Request, header: &str, value: Option<&str>) {
    if let Some(value) = value {
        request.set(header, value);
    }
}

/// RFC 9110 §5.6.2.
fn is_token(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(known)
}

fn check_word(what: &'static str, text: Option<&str>) -> Result<(), OptionsError> {
    match text {
        Some(text) if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(OptionsError::Word { what, text: shown(text) })
        }
        _ => Ok(()),
    }
}

/// The first character that is no printable ASCII, as an error shows it.
fn unprintable(text: &str) -> Option<String> {
    let found = text.chars().find(|character| !matches!(character, ' '..='~'))?;
    Some(if found.is_control() { found.escape_default().to_string() } else { shown(&found.to_string()) })
}

fn shown(text: &str) -> String {
    one_line(&excerpt(text, SHOWN))
}

#[cfg(test)]
#[path = "object_options_tests.rs"]
mod tests;
