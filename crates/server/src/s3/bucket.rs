//! ListBuckets, both forms of ListObjects, ListObjectVersions, and DeleteObjects.

use s3s::dto::*;
use s3s::{S3Result, s3_error};

use super::S3Dialect;
use super::answer::{NO_VERSION, check_version, owner, storage_class};
use crate::backend::shown;
use crate::characters::fit_xml;
use crate::conditions::Precondition;
use crate::page::{ListingPage, Query, key_to_token, token_to_key, url_encode};

/// Most keys in one page, and the number when none is asked for; S3's own.
const MAX_KEYS: i32 = 1000;

/// Most buckets in one page, when pages are asked for.
const MAX_BUCKETS: i32 = 10_000;

/// Most keys in one DeleteObjects.
const MAX_DELETED: usize = 1000;

impl S3Dialect {
    pub(super) fn buckets(&self, input: ListBucketsInput) -> S3Result<ListBucketsOutput> {
        let prefix = input.prefix.as_deref().unwrap_or_default();
        let after = input.continuation_token.as_deref().map(token_to_key).transpose()?.unwrap_or_default();
        let most = match input.max_buckets {
            None => usize::MAX,
            Some(most @ 1..=MAX_BUCKETS) => most as usize,
            Some(most) => return Err(s3_error!(InvalidArgument, "max-buckets is {most}")),
        };
        let mut found = self.storage.backend.buckets()?;
        found.retain(|(name, _)| name.starts_with(prefix) && *name > after);
        let more = found.len() > most;
        found.truncate(most);
        let next = found.last().filter(|_| more).map(|(name, _)| key_to_token(name));
        let buckets = found.into_iter().map(|(name, created)| Bucket {
            name: Some(name),
            creation_date: Some(created.into()),
            ..Default::default()
        });
        Ok(ListBucketsOutput {
            buckets: Some(buckets.collect()),
            owner: Some(owner()),
            continuation_token: next,
            prefix: input.prefix,
        })
    }

    pub(super) fn list_v2(&self, input: ListObjectsV2Input) -> S3Result<ListObjectsV2Output> {
        let encode = encoder(input.encoding_type.as_ref());
        let token = input.continuation_token.as_deref().map(token_to_key).transpose()?;
        let max_keys = max_keys(input.max_keys)?;
        let page = self.storage.page(&Query {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: delimiter(&input.delimiter),
            after: token.as_deref().or(input.start_after.as_deref()).unwrap_or_default(),
            max_keys: max_keys as usize,
        })?;
        Ok(ListObjectsV2Output {
            key_count: Some((page.objects.len() + page.prefixes.len()) as i32),
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.as_deref().map(key_to_token),
            continuation_token: input.continuation_token,
            contents: Some(contents(&page, encode, input.fetch_owner == Some(true))),
            common_prefixes: Some(common_prefixes(&page, encode)),
            prefix: Some(encode(&input.prefix.unwrap_or_default())),
            delimiter: delimiter(&input.delimiter).map(encode),
            start_after: input.start_after.as_deref().map(encode),
            name: Some(input.bucket),
            max_keys: Some(max_keys),
            encoding_type: input.encoding_type,
            ..Default::default()
        })
    }

    pub(super) fn list_v1(&self, input: ListObjectsInput) -> S3Result<ListObjectsOutput> {
        let encode = encoder(input.encoding_type.as_ref());
        let max_keys = max_keys(input.max_keys)?;
        let page = self.storage.page(&Query {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: delimiter(&input.delimiter),
            after: input.marker.as_deref().unwrap_or_default(),
            max_keys: max_keys as usize,
        })?;
        Ok(ListObjectsOutput {
            is_truncated: Some(page.next.is_some()),
            next_marker: page.next.as_deref().map(encode),
            contents: Some(contents(&page, encode, true)),
            common_prefixes: Some(common_prefixes(&page, encode)),
            prefix: Some(encode(&input.prefix.unwrap_or_default())),
            delimiter: delimiter(&input.delimiter).map(encode),
            marker: Some(encode(&input.marker.unwrap_or_default())),
            name: Some(input.bucket),
            max_keys: Some(max_keys),
            encoding_type: input.encoding_type,
            ..Default::default()
        })
    }

    /// Every object here is of the version that there is without versions.
    pub(super) fn list_versions(&self, input: ListObjectVersionsInput) -> S3Result<ListObjectVersionsOutput> {
        let encode = encoder(input.encoding_type.as_ref());
        let max_keys = max_keys(input.max_keys)?;
        if input.version_id_marker.is_some() && input.key_marker.is_none() {
            return Err(s3_error!(InvalidArgument, "a version-id-marker comes with a key-marker"));
        }
        let page = self.storage.page(&Query {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: delimiter(&input.delimiter),
            after: input.key_marker.as_deref().unwrap_or_default(),
            max_keys: max_keys as usize,
        })?;
        let versions = page.objects.iter().map(|listed| ObjectVersion {
            key: Some(encode(&listed.key)),
            version_id: Some(NO_VERSION.to_owned()),
            is_latest: Some(true),
            size: Some(listed.size as i64),
            e_tag: Some(ETag::Strong(listed.etag.clone())),
            last_modified: Some(listed.modified.into()),
            owner: Some(owner()),
            storage_class: Some(ObjectVersionStorageClass::from(storage_class(
                listed.storage_class.as_deref(),
            ))),
            ..Default::default()
        });
        Ok(ListObjectVersionsOutput {
            versions: Some(versions.collect()),
            common_prefixes: Some(common_prefixes(&page, encode)),
            is_truncated: Some(page.next.is_some()),
            next_version_id_marker: page.next.as_ref().map(|_| NO_VERSION.to_owned()),
            next_key_marker: page.next.as_deref().map(encode),
            prefix: Some(encode(&input.prefix.unwrap_or_default())),
            delimiter: delimiter(&input.delimiter).map(encode),
            key_marker: Some(encode(&input.key_marker.unwrap_or_default())),
            version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
            name: Some(input.bucket),
            max_keys: Some(max_keys),
            encoding_type: input.encoding_type,
            ..Default::default()
        })
    }

    pub(super) fn delete_many(&self, input: DeleteObjectsInput) -> S3Result<DeleteObjectsOutput> {
        self.storage.backend.check_bucket(&input.bucket)?;
        let count = input.delete.objects.len();
        if !(1..=MAX_DELETED).contains(&count) {
            return Err(s3_error!(
                MalformedXML,
                "1 to {MAX_DELETED} keys are deleted at once, and {count} came"
            ));
        }
        // Refused before anything is deleted: the response could not name it. As a reference it
        // has been refused already.
        if let Some(object) = input.delete.objects.iter().find(|object| !fit_xml(&object.key)) {
            let key = shown(&object.key);
            return Err(s3_error!(MalformedXML, "no XML can name the key {key}: delete it by itself"));
        }
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for object in input.delete.objects {
            let condition = Precondition {
                if_match: object.e_tag.map(condition),
                if_modified_at: object.last_modified_time,
                if_size: object.size.map(|bytes| bytes as u64),
                ..Precondition::default()
            };
            let checked = check_version(object.version_id.as_deref());
            match checked.and_then(|()| self.storage.delete(&input.bucket, &object.key, &condition)) {
                Ok(()) => deleted.push(DeletedObject { key: Some(object.key), ..Default::default() }),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    message: error.message().map(str::to_owned),
                    key: Some(object.key),
                    ..Default::default()
                }),
            }
        }
        let deleted = (input.delete.quiet != Some(true)).then_some(deleted);
        Ok(DeleteObjectsOutput { deleted, errors: Some(errors), ..Default::default() })
    }
}

fn max_keys(max_keys: Option<i32>) -> S3Result<i32> {
    match max_keys.unwrap_or(MAX_KEYS) {
        max_keys if max_keys < 0 => Err(s3_error!(InvalidArgument, "max-keys is {max_keys}")),
        max_keys => Ok(max_keys.min(MAX_KEYS)),
    }
}

/// An empty delimiter is none.
fn delimiter(delimiter: &Option<String>) -> Option<&str> {
    delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())
}

/// How `encoding-type` encodes keys.
fn encoder(encoding: Option<&EncodingType>) -> fn(&str) -> String {
    if encoding.is_some_and(|encoding| encoding.as_str() == EncodingType::URL) {
        url_encode
    } else {
        str::to_owned
    }
}

/// In a list of keys the star stands between quotes, or not, as an ETag does.
fn condition(etag: ETag) -> ETagCondition {
    if etag.value() == "*" { ETagCondition::Any } else { ETagCondition::ETag(etag) }
}

fn contents(page: &ListingPage, encode: fn(&str) -> String, owned: bool) -> Vec<Object> {
    let objects = page.objects.iter().map(|listed| Object {
        key: Some(encode(&listed.key)),
        size: Some(listed.size as i64),
        e_tag: Some(ETag::Strong(listed.etag.clone())),
        last_modified: Some(listed.modified.into()),
        owner: owned.then(owner),
        storage_class: Some(ObjectStorageClass::from(storage_class(listed.storage_class.as_deref()))),
        ..Default::default()
    });
    objects.collect()
}

fn common_prefixes(page: &ListingPage, encode: fn(&str) -> String) -> Vec<CommonPrefix> {
    page.prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(encode(prefix)) }).collect()
}
