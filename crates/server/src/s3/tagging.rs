//! Get, Put and DeleteObjectTagging.

use s3s::S3Result;
use s3s::dto::*;

use super::S3Dialect;
use super::answer::check_version;
use crate::tags;

impl S3Dialect {
    pub(super) fn get_tags(&self, input: GetObjectTaggingInput) -> S3Result<GetObjectTaggingOutput> {
        check_version(input.version_id.as_deref())?;
        let object = self.storage.backend.open(&input.bucket, &input.key)?;
        let tags = object.metadata.tags.iter();
        let tag_set = tags.map(|(key, value)| Tag { key: Some(key.clone()), value: Some(value.clone()) });
        Ok(GetObjectTaggingOutput { tag_set: tag_set.collect(), ..Default::default() })
    }

    pub(super) fn put_tags(&self, input: PutObjectTaggingInput) -> S3Result<PutObjectTaggingOutput> {
        check_version(input.version_id.as_deref())?;
        let pairs = input.tagging.tag_set.into_iter();
        let pairs = pairs.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default()));
        let tags = tags::collect(pairs.collect())?;
        self.storage.describe(&input.bucket, &input.key, |metadata| metadata.tags = tags)?;
        Ok(PutObjectTaggingOutput::default())
    }

    pub(super) fn delete_tags(&self, input: DeleteObjectTaggingInput) -> S3Result<DeleteObjectTaggingOutput> {
        check_version(input.version_id.as_deref())?;
        self.storage.describe(&input.bucket, &input.key, |metadata| metadata.tags.clear())?;
        Ok(DeleteObjectTaggingOutput::default())
    }
}
