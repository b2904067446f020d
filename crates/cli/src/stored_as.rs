//! What an uploaded object is stored with, as it is typed.

use flatout_wire::object_options::ObjectOptions;
use flatout_wire::time;

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
    /// The object's Content-Language, as in de
    #[arg(long, value_name = "LANGUAGE")]
    pub content_language: Option<String>,
    /// The object's Expires: an HTTP date, or a time as 2027-01-31T12:00:00Z
    #[arg(long, value_name = "DATE", value_parser = http_date)]
    pub expires: Option<String>,
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
            content_language,
            expires,
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
            content_language,
            expires,
            storage_class,
            acl,
            sse,
            sse_kms_key_id,
            if_match,
        ];
        options.iter().all(|option| option.is_none()) && metadata.is_empty() && tagging.is_empty()
    }
}

/// The date as a header has it.
fn http_date(typed: &str) -> Result<String, String> {
    let unix_s = time::parse_http(typed).or_else(|| rfc_3339(typed));
    unix_s.map(time::format_http).ok_or_else(|| {
        "write a time as 2027-01-31T12:00:00Z, or an HTTP date as 'Sun, 31 Jan 2027 12:00:00 GMT'".to_owned()
    })
}

/// Unix seconds of a time in UTC, or with its distance from UTC behind it: `+02:00`.
fn rfc_3339(typed: &str) -> Option<u64> {
    let typed = typed.to_ascii_uppercase();
    let Some(at) = typed.len().checked_sub("+00:00".len()).filter(|_| !typed.ends_with('Z')) else {
        return time::parse_iso(&typed);
    };
    let (clock, offset) = typed.split_at_checked(at)?;
    let sign = [('+', -1), ('-', 1)].into_iter().find(|(sign, _)| offset.starts_with(*sign))?.1;
    let (hours, minutes) = offset[1..].split_once(':')?;
    let number = |text: &str, most: i64| {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<i64>().ok().filter(|number| is_number && *number <= most)
    };
    let away_s = number(hours, 23)? * 3_600 + number(minutes, 59)? * 60;
    let unix_s = time::parse_iso(&format!("{clock}Z"))?.checked_add_signed(sign * away_s)?;
    // The last second of the year 9999: no header has a later one.
    (unix_s <= 253_402_300_799).then_some(unix_s)
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
        content_language: typed.content_language.clone(),
        expires: typed.expires.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_become_those_of_headers() {
        let check = |typed: &str, expected: Option<&str>| {
            assert_eq!(http_date(typed).ok().as_deref(), expected, "{typed}");
        };
        let noon = Some("Sun, 31 Jan 2027 12:00:00 GMT");
        check("Sun, 31 Jan 2027 12:00:00 GMT", noon);
        check("2027-01-31T12:00:00Z", noon);
        check("2027-01-31t12:00:00.5z", noon);
        check("2027-01-31T14:00:00+02:00", noon);
        check("2027-01-31T06:30:00-05:30", noon);
        check("9999-12-31T23:59:59-00:01", None);
        check("1970-01-01T00:00:00+00:01", None);
        for wrong in
            ["", "soon", "+00:00", "2027-01-31", "2027-02-31T00:00:00Z", "2027-01-31T12:00:00+2", "ü+00:00"]
        {
            check(wrong, None);
        }
        for wrong in ["2027-01-31T12:00:00", "2027-01-31T12:00:00+24:00", "2027-01-31T12:00:00+-1:00"] {
            check(wrong, None);
        }
    }
}
