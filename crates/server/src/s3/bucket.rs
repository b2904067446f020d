//! ListBuckets, both forms of ListObjects, and DeleteObjects.

use s3s::dto::*;
use s3s::{S3Result, s3_error};

use super::Dialect;
use crate::page::{Page, Query, key_to_token, token_to_key, url_encode};

/// Most keys in one page, and the number when none is asked for; S3's own.
const MAX_KEYS: i32 = 1000;

impl Dialect {
    pub(super) fn buckets(&self) -> S3Result<ListBucketsOutput> {
        let buckets = self.stock.shelf.buckets()?.into_iter().map(|(name, created)| Bucket {
            name: Some(name),
            creation_date: Some(created.into()),
            ..Default::default()
        });
        Ok(ListBucketsOutput { buckets: Some(buckets.collect()), ..Default::default() })
    }

    pub(super) fn list_v2(&self, input: ListObjectsV2Input) -> S3Result<ListObjectsV2Output> {
        let encode = encoder(input.encoding_type.as_ref());
        let token = input.continuation_token.as_deref().map(token_to_key).transpose()?;
        let max_keys = max_keys(input.max_keys)?;
        let page = self.stock.page(&Query {
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
            contents: Some(contents(&page, encode)),
            common_prefixes: Some(common_prefixes(&page, encode)),
            prefix: Some(encode(&input.prefix.unwrap_or_default())),
            delimiter: input.delimiter.as_deref().map(encode),
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
        let page = self.stock.page(&Query {
            bucket: &input.bucket,
            prefix: input.prefix.as_deref().unwrap_or_default(),
            delimiter: delimiter(&input.delimiter),
            after: input.marker.as_deref().unwrap_or_default(),
            max_keys: max_keys as usize,
        })?;
        Ok(ListObjectsOutput {
            is_truncated: Some(page.next.is_some()),
            next_marker: page.next.as_deref().map(encode),
            contents: Some(contents(&page, encode)),
            common_prefixes: Some(common_prefixes(&page, encode)),
            prefix: Some(encode(&input.prefix.unwrap_or_default())),
            delimiter: input.delimiter.as_deref().map(encode),
            marker: Some(encode(&input.marker.unwrap_or_default())),
            name: Some(input.bucket),
            max_keys: Some(max_keys),
            encoding_type: input.encoding_type,
            ..Default::default()
        })
    }

    pub(super) fn delete_many(&self, input: DeleteObjectsInput) -> S3Result<DeleteObjectsOutput> {
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for object in input.delete.objects {
            match self.stock.shelf.delete(&input.bucket, &object.key) {
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

fn max_keys(asked: Option<i32>) -> S3Result<i32> {
    match asked.unwrap_or(MAX_KEYS) {
        asked if asked < 0 => Err(s3_error!(InvalidArgument, "max-keys is {asked}")),
        asked => Ok(asked.min(MAX_KEYS)),
    }
}

/// An empty delimiter is none.
fn delimiter(asked: &Option<String>) -> Option<&str> {
    asked.as_deref().filter(|delimiter| !delimiter.is_empty())
}

/// What `encoding-type` asks to be done to keys.
fn encoder(asked: Option<&EncodingType>) -> fn(&str) -> String {
    if asked.is_some_and(|asked| asked.as_str() == EncodingType::URL) { url_encode } else { str::to_owned }
}

fn contents(page: &Page, encode: fn(&str) -> String) -> Vec<Object> {
    let objects = page.objects.iter().map(|listed| Object {
        key: Some(encode(&listed.key)),
        size: Some(listed.size as i64),
        e_tag: Some(ETag::Strong(listed.etag.clone())),
        last_modified: Some(listed.modified.into()),
        storage_class: Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD)),
        ..Default::default()
    });
    objects.collect()
}

fn common_prefixes(page: &Page, encode: fn(&str) -> String) -> Vec<CommonPrefix> {
    page.prefixes.iter().map(|prefix| CommonPrefix { prefix: Some(encode(prefix)) }).collect()
}
