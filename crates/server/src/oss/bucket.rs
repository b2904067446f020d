//! GetService, both forms of ListObjects, and the requests that OSS's clients send about a bucket before they
//! use it.

use flatout_wire::time::format_iso;

use super::refusal::Refusal;
use super::request::OssRequest;
use super::response::{OssResponse, storage_class};
use super::xml::XmlDocument;
use super::{OssDialect, seconds};
use crate::page::{ListingPage, Query, key_to_token, token_to_key, url_encode};

/// Keys in one page when no number is asked for, and at most.
const KEYS: u64 = 100;
const MAX_KEYS: u64 = 1000;

/// The owner of every bucket and object.
const OWNER: &str = "flatout";

/// Where a bucket is when the host does not say.
const LOCATION: &str = "oss-cn-hangzhou";

impl OssDialect {
    pub(super) fn list_buckets(&self, request: &OssRequest) -> Result<OssResponse, Refusal> {
        let text = |name: &str| request.parameter(name).unwrap_or_default();
        let most = max_keys(request)? as usize;
        let mut found = self.storage.backend.buckets()?;
        found.retain(|(name, _)| name.starts_with(text("prefix")) && name.as_str() > text("marker"));
        let more = found.len() > most;
        found.truncate(most);
        let mut document = XmlDocument::new("ListAllMyBucketsResult");
        show_owner(&mut document);
        document.leaf("Prefix", text("prefix"));
        document.leaf("Marker", text("marker"));
        document.leaf("MaxKeys", &most.to_string());
        document.leaf("IsTruncated", yes(more));
        document.leaf_if("NextMarker", found.last().filter(|_| more).map(|(name, _)| name.as_str()));
        document.group("Buckets", |buckets| {
            for (name, created) in &found {
                buckets.group("Bucket", |bucket| show_bucket(bucket, request, name, seconds(*created)));
            }
        });
        Ok(OssResponse::xml(document))
    }

    pub(super) fn list_objects(&self, request: &OssRequest, bucket: &str) -> Result<OssResponse, Refusal> {
        let second = request.parameter("list-type") == Some("2");
        let text = |name: &str| request.parameter(name).filter(|text| !text.is_empty());
        let token = text("continuation-token").map(token_to_key).transpose()?;
        let after = if second { token.as_deref().or(text("start-after")) } else { text("marker") };
        let max_keys = max_keys(request)?;
        let page = self.storage.page(&Query {
            bucket,
            prefix: text("prefix").unwrap_or_default(),
            delimiter: text("delimiter"),
            after: after.unwrap_or_default(),
            max_keys: max_keys as usize,
        })?;
        let encode: fn(&str) -> String = if request.wants_encoding() { url_encode } else { str::to_owned };
        let mut document = XmlDocument::new("ListBucketResult");
        document.leaf_if("EncodingType", request.wants_encoding().then_some("url"));
        document.leaf("Name", bucket);
        document.leaf("Prefix", &encode(text("prefix").unwrap_or_default()));
        document.leaf("Delimiter", &encode(text("delimiter").unwrap_or_default()));
        document.leaf("MaxKeys", &max_keys.to_string());
        document.leaf("IsTruncated", yes(page.next.is_some()));
        if second {
            document.leaf_if("StartAfter", text("start-after").map(encode).as_deref());
            document.leaf_if("ContinuationToken", text("continuation-token"));
            document.leaf_if("NextContinuationToken", page.next.as_deref().map(key_to_token).as_deref());
            document.leaf("KeyCount", &(page.objects.len() + page.prefixes.len()).to_string());
        } else {
            document.leaf("Marker", &encode(text("marker").unwrap_or_default()));
            document.leaf_if("NextMarker", page.next.as_deref().map(encode).as_deref());
        }
        let owned = !second || request.parameter("fetch-owner") == Some("true");
        OssDialect::show_page(&mut document, &page, encode, owned);
        Ok(OssResponse::xml(document))
    }

    fn show_page(document: &mut XmlDocument, page: &ListingPage, encode: fn(&str) -> String, owned: bool) {
        for listed in &page.objects {
            document.group("Contents", |shown| {
                shown.leaf("Key", &encode(&listed.key));
                shown.leaf("LastModified", &format_iso(seconds(listed.modified)));
                shown.leaf("ETag", &format!("\"{}\"", listed.etag));
                shown.leaf("Type", listed.kind.name());
                shown.leaf("Size", &listed.size.to_string());
                shown.leaf("StorageClass", storage_class(listed.storage_class.as_deref()));
                if owned {
                    show_owner(shown);
                }
            });
        }
        for prefix in &page.prefixes {
            document.group("CommonPrefixes", |shown| shown.leaf("Prefix", &encode(prefix)));
        }
    }

    pub(super) fn bucket_info(&self, request: &OssRequest, bucket: &str) -> Result<OssResponse, Refusal> {
        let created = self.storage.backend.buckets()?.into_iter().find(|(name, _)| name == bucket);
        self.storage.backend.check_bucket(bucket)?;
        let created_s = created.map_or(0, |(_, created)| seconds(created));
        let mut document = XmlDocument::new("BucketInfo");
        document.group("Bucket", |shown| {
            show_bucket(shown, request, bucket, created_s);
            show_owner(shown);
            shown.group("AccessControlList", |list| list.leaf("Grant", "private"));
        });
        Ok(OssResponse::xml(document))
    }

    pub(super) fn bucket_location(&self, bucket: &str) -> Result<OssResponse, Refusal> {
        self.storage.backend.check_bucket(bucket)?;
        let mut document = XmlDocument::new("LocationConstraint");
        document.text(LOCATION);
        Ok(OssResponse::xml(document))
    }

    pub(super) fn bucket_acl(&self, bucket: &str) -> Result<OssResponse, Refusal> {
        self.storage.backend.check_bucket(bucket)?;
        Ok(access_list("private"))
    }

    pub(super) fn create_bucket(&self, bucket: &str) -> Result<OssResponse, Refusal> {
        self.storage.backend.create_bucket(bucket)?;
        Ok(OssResponse::ok().with("location", format!("/{bucket}")))
    }

    pub(super) fn delete_bucket(&self, bucket: &str) -> Result<OssResponse, Refusal> {
        self.storage.backend.check_bucket(bucket)?;
        // OSS, unlike S3, counts unfinished uploads.
        if !self.storage.uploads.unfinished(bucket, "", ("", None)).is_empty() {
            let why = format!("the bucket {bucket} has unfinished uploads");
            return Err(Refusal::new(409, "BucketNotEmpty", why));
        }
        self.storage.delete_bucket(bucket)?;
        Ok(OssResponse::no_content())
    }
}

/// The access list of every bucket and object, which never changes.
pub(super) fn access_list(grant: &str) -> OssResponse {
    let mut document = XmlDocument::new("AccessControlPolicy");
    show_owner(&mut document);
    document.group("AccessControlList", |list| list.leaf("Grant", grant));
    OssResponse::xml(document)
}

fn max_keys(request: &OssRequest) -> Result<u64, Refusal> {
    match request.number("max-keys")?.unwrap_or(KEYS) {
        most @ 1..=MAX_KEYS => Ok(most),
        most => Err(Refusal::new(
            400,
            "InvalidArgument",
            format!("max-keys goes from 1 to {MAX_KEYS}, and {most} came"),
        )),
    }
}

fn show_bucket(shown: &mut XmlDocument, request: &OssRequest, name: &str, created_s: u64) {
    let endpoint = request.host.strip_prefix(&format!("{name}.")).unwrap_or(&request.host);
    shown.leaf("Name", name);
    shown.leaf("CreationDate", &format_iso(created_s));
    shown.leaf("Location", LOCATION);
    shown.leaf("ExtranetEndpoint", endpoint);
    shown.leaf("IntranetEndpoint", endpoint);
    shown.leaf("StorageClass", "Standard");
}

fn show_owner(document: &mut XmlDocument) {
    document.group("Owner", |owner| {
        owner.leaf("ID", OWNER);
        owner.leaf("DisplayName", OWNER);
    });
}

fn yes(is: bool) -> &'static str {
    if is { "true" } else { "false" }
}
