//! What an uploaded object is stored with, as it is typed.

use flatout_wire::object_options::ObjectOptions;

use crate::failure::Failure;

/// What is done with symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Symlinks {
    #[default]
    Follow,
    Skip,
    Refuse,
}

/// What an uploaded object is stored with.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Uploads")]
pub struct StoredAs {
    /// The object's Content-Type; by its extension otherwise
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// The object's Cache-Control, as in max-age=3600
    #[arg(long, value_name = "DIRECTIVES")]
    pub cache_control: Option<String>,
    /// The object's Content-Disposition
    #[arg(long, value_name = "VALUE")]
    pub content_disposition: Option<String>,
    /// The object's Content-Encoding: say it where the bytes are compressed already
    #[arg(long, value_name = "CODING")]
    pub content_encoding: Option<String>,
    /// Metadata of the object (x-amz-meta-NAME, x-oss-meta-NAME); may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    pub metadata: Vec<String>,
    /// A tag of the object; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub tagging: Vec<String>,
    /// The storage class, as in STANDARD_IA
    #[arg(long, value_name = "CLASS")]
    pub storage_class: Option<String>,
    /// A canned access list, as in bucket-owner-full-control
    #[arg(long, value_name = "ACL")]
    pub acl: Option<String>,
    /// Encryption by the origin: AES256, aws:kms (KMS)
    #[arg(long, value_name = "ALGORITHM")]
    pub sse: Option<String>,
    /// The key for an encryption by aws:kms
    #[arg(long, value_name = "ID")]
    pub sse_kms_key_id: Option<String>,
    /// Only replace the object that has this ETag
    #[arg(long, value_name = "ETAG")]
    pub if_match: Option<String>,
}

impl StoredAs {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        let StoredAs {
            content_type,
            cache_control,
            content_disposition,
            content_encoding,
            metadata,
            tagging,
            storage_class,
            acl,
            sse,
            sse_kms_key_id,
            if_match,
        } = self;
        let options = [
            content_type,
            cache_control,
            content_disposition,
            content_encoding,
            storage_class,
            acl,
            sse,
            sse_kms_key_id,
            if_match,
        ];
        options.iter().all(|option| option.is_none()) && metadata.is_empty() && tagging.is_empty()
    }
}

/// The type that the extension of a name says.
pub fn content_type(name: &str) -> Option<String> {
    mime_guess::from_path(name).first_raw().map(str::to_owned)
}

/// What an object is stored with; its type is `guessed` where nothing says otherwise.
pub fn options(typed: &StoredAs, guessed: Option<String>) -> Result<ObjectOptions, Failure> {
    Ok(ObjectOptions {
        content_type: typed.content_type.clone().or(guessed),
        cache_control: typed.cache_control.clone(),
        content_disposition: typed.content_disposition.clone(),
        content_encoding: typed.content_encoding.clone(),
        content_language: None,
        expires: None,
        storage_class: typed.storage_class.clone(),
        acl: typed.acl.clone(),
        sse: typed.sse.clone(),
        sse_kms_key_id: typed.sse_kms_key_id.clone(),
        metadata: pairs("metadata", &typed.metadata)?,
        tags: pairs("tagging", &typed.tagging)?,
    })
}

fn pairs(flag: &str, typed: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let pair = |typed: &String| match typed.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(Failure::usage(format!("--{flag}: '{typed}' is no pair")).with_hint("write NAME=VALUE")),
    };
    typed.iter().map(pair).collect()
}
