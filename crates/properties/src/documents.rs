//! XML of both dialects: listings, error documents, answers about uploads. Any bytes do no harm, and what an origin
//! writes is read as it was meant.

use flatout_wire::listing::{Listed, Page, XmlError, parse_buckets, parse_oss_page, parse_page};
use flatout_wire::percent;
use flatout_wire::time::format_iso;
use flatout_wire::verdict::{self, Refusal, Verdict};
use flatout_wire::xml::walk;

use crate::pieces::Chance;

/// Longer is no word for people.
const WORDS_MAX: usize = 1000;
const STATUSES: [u16; 6] = [200, 206, 301, 403, 404, 503];

/// `bytes` are a document, and the keys of a listing.
pub fn documents(bytes: &[u8]) {
    walked(bytes);
    for parse in [parse_page, parse_oss_page] {
        listed(parse(bytes), bytes);
    }
    if let Err(error) = parse_buckets(bytes) {
        is_fit_for_people(&error.to_string());
    }
    for status in STATUSES {
        judged(status, bytes);
    }
    let text = String::from_utf8_lossy(bytes);
    a_listing_is_read_as_written(&text);
    an_upload_is_read_as_written(&text);
    a_refusal_is_read_as_written(&text);
}

fn walked(bytes: &[u8]) {
    let tags = bytes.iter().filter(|byte| **byte == b'<').count();
    let mut seen = 0;
    let _ = walk(bytes, |path, text| {
        seen += 1;
        assert!(path.split('/').all(|name| !name.is_empty()), "an element without a name: {path}");
        // No entity makes a document swell: each is longer than what it stands for.
        assert!(
            path.len() + text.len() <= bytes.len(),
            "{} bytes of {}",
            path.len() + text.len(),
            bytes.len()
        );
        assert!(path.split('/').count() <= 32, "{path}");
        Ok(())
    });
    assert!(seen <= tags, "{seen} elements of {tags} tags");
}

fn listed(parsed: Result<Page, XmlError>, bytes: &[u8]) {
    match parsed {
        Ok(page) => {
            let tags = bytes.iter().filter(|byte| **byte == b'<').count();
            assert!(page.objects.len() + page.prefixes.len() <= tags);
            assert!(page.next.as_deref() != Some(""), "the next page has no name");
        }
        Err(error) => is_fit_for_people(&error.to_string()),
    }
}

fn judged(status: u16, bytes: &[u8]) {
    let verdict = verdict::of(status, bytes);
    let (Verdict::Again(refusal) | Verdict::Later(refusal) | Verdict::Refused(refusal)) = verdict else {
        assert!((200..300).contains(&status), "{status} is no success");
        return;
    };
    assert!(!refusal.code.is_empty() && refusal.status == status, "{refusal:?}");
    let _ = refusal.reason();
    let Refusal { code, message, request_id, region, endpoint, ec, .. } = &refusal;
    for words in
        [Some(code), Some(message), request_id.as_ref(), region.as_ref(), endpoint.as_ref(), ec.as_ref()]
    {
        let words = words.map_or("", String::as_str);
        assert!(!words.contains(char::is_control) && words.chars().count() <= 500, "{words:?}");
    }
}

#[track_caller]
fn is_fit_for_people(said: &str) {
    assert!(!said.contains(char::is_control), "{said:?}");
    assert!(said.chars().count() <= WORDS_MAX, "{} characters: {said:?}", said.chars().count());
}

fn a_listing_is_read_as_written(text: &str) {
    let mut chance = Chance::of(text.as_bytes(), 0);
    let keys: Vec<&str> = text.split('\n').filter(|key| !key.is_empty()).take(20).collect();
    let objects: Vec<Listed> = keys
        .iter()
        .map(|key| Listed {
            key: (*key).to_owned(),
            size: chance.next(),
            etag: Some("\"5B3C1A2E053D763E1B002CC607C5A0FE\"".into()),
            last_modified: chance.next() % 4_000_000_000,
            storage_class: Some("Standard".into()),
        })
        .collect();
    let prefixes: Vec<String> = keys.iter().take(3).map(|key| format!("{key}/")).collect();
    let next = keys.first().map(|key| (*key).trim().to_owned()).filter(|token| !token.is_empty());
    let page = Page { objects, prefixes, next };
    let oss = written(&page, &encoded, &encoded);
    assert_eq!(parse_oss_page(oss.as_bytes()).as_ref(), Ok(&page), "{oss}");
    if is_xml(text) {
        // S3 encodes keys as forms do and leaves its token alone.
        let s3 = written(&page, &|key| encoded(key).replace("%20", "+"), &escaped);
        assert_eq!(parse_page(s3.as_bytes()).as_ref(), Ok(&page), "{s3}");
        let plain = written(&page, &escaped, &escaped).replace("<EncodingType>url</EncodingType>", "");
        assert_eq!(parse_page(plain.as_bytes()).as_ref(), Ok(&page), "{plain}");
    }
}

fn written(page: &Page, key: &dyn Fn(&str) -> String, token: &dyn Fn(&str) -> String) -> String {
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult><Name>b</Name><EncodingType>url</EncodingType>\
         <IsTruncated>{}</IsTruncated>",
        page.next.is_some()
    );
    for object in &page.objects {
        xml += &format!(
            "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size>\
             <StorageClass>{}</StorageClass></Contents>",
            key(&object.key),
            format_iso(object.last_modified),
            escaped(object.etag.as_deref().unwrap_or("")),
            object.size,
            object.storage_class.as_deref().unwrap_or("")
        );
    }
    for prefix in &page.prefixes {
        xml += &format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", key(prefix));
    }
    if let Some(next) = &page.next {
        xml += &format!("<NextContinuationToken>{}</NextContinuationToken>", token(next));
    }
    xml + "</ListBucketResult>"
}

fn an_upload_is_read_as_written(id: &str) {
    if !is_xml(id) {
        return;
    }
    let xml = format!(
        "<InitiateMultipartUploadResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Bucket>b</Bucket>\
         <Key>k</Key><UploadId>{}</UploadId></InitiateMultipartUploadResult>",
        escaped(id)
    );
    let mut found = None;
    let walked = walk(xml.as_bytes(), |path, text| {
        if path == "InitiateMultipartUploadResult/UploadId" {
            found = Some(text.to_owned());
        }
        Ok(())
    });
    assert_eq!((walked, found.as_deref()), (Ok(()), Some(id)), "{xml}");
    assert_eq!(verdict::of(200, xml.as_bytes()), Verdict::Done);
}

fn a_refusal_is_read_as_written(message: &str) {
    if !is_xml(message) {
        return;
    }
    // What comes with 200 in answer to CompleteMultipartUpload, behind the spaces that kept the connection alive.
    let xml = format!("  \n<Error><Code>SlowDown</Code><Message>{}</Message></Error>", escaped(message));
    let Verdict::Later(refusal) = verdict::of(200, xml.as_bytes()) else { panic!("{xml}") };
    let mut words: Vec<char> = message.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if words.len() > 500 {
        words.truncate(499);
        words.push('…');
    }
    assert_eq!(refusal.message, String::from_iter(words), "{xml}");
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    percent::encode_query(text, &mut encoded);
    encoded
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' | '<' | '>' | '"' | '\'' | '\r' | '\n' | '\t' => escaped += &format!("&#{};", u32::from(c)),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Whether XML 1.0 can carry it at all (§2.2). Line breaks of later editions (U+0085, U+2028) count as control here.
fn is_xml(text: &str) -> bool {
    text.chars()
        .all(|c| matches!(c, '\t' | '\n' | '\r') || !(c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')))
}
