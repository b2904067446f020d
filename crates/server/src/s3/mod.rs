//! S3's operations as `s3s` hands them over, each answered in the module of its kind.

mod answer;
mod bucket;
pub(crate) mod dated;
mod get;
mod multipart;
mod put;
mod tagging;
pub(crate) mod unsupported;

use std::sync::Arc;

use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use crate::conditions::Conditions;
use crate::storage::Storage;
use answer::{check_version, owner, private_grants};

/// The S3 that an origin speaks over its storage.
pub(crate) struct S3Dialect {
    pub storage: Arc<Storage>,
}

type OperationResult<T> = S3Result<S3Response<T>>;

#[async_trait::async_trait]
impl S3 for S3Dialect {
    async fn list_buckets(&self, request: S3Request<ListBucketsInput>) -> OperationResult<ListBucketsOutput> {
        self.buckets(request.input).map(S3Response::new)
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> OperationResult<HeadBucketOutput> {
        self.storage.backend.check_bucket(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> OperationResult<CreateBucketOutput> {
        self.storage.backend.create_bucket(&request.input.bucket)?;
        let location = Some(format!("/{}", request.input.bucket));
        Ok(S3Response::new(CreateBucketOutput { location }))
    }

    async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> OperationResult<DeleteBucketOutput> {
        self.storage.delete_bucket(&request.input.bucket)?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> OperationResult<GetBucketLocationOutput> {
        self.storage.backend.check_bucket(&request.input.bucket)?;
        // Empty means us-east-1.
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> OperationResult<ListObjectsV2Output> {
        self.list_v2(request.input).map(S3Response::new)
    }

    async fn list_objects(&self, request: S3Request<ListObjectsInput>) -> OperationResult<ListObjectsOutput> {
        self.list_v1(request.input).map(S3Response::new)
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> OperationResult<GetObjectOutput> {
        self.get(request.input).map(S3Response::new)
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> OperationResult<HeadObjectOutput> {
        self.head(request.input).map(S3Response::new)
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> OperationResult<PutObjectOutput> {
        self.put(request).await.map(S3Response::new)
    }

    /// s3s passes over fields that it does not know, an access list among them: better none than a form that
    /// is half read.
    async fn post_object(&self, _: S3Request<PostObjectInput>) -> OperationResult<PostObjectOutput> {
        Err(s3_error!(NotImplemented, "this origin takes no uploads by POST of a form"))
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> OperationResult<CopyObjectOutput> {
        let destination = Conditions::of(&request.headers, "");
        self.copy(request.input, destination).map(S3Response::new)
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> OperationResult<DeleteObjectOutput> {
        self.delete(request.input).map(S3Response::new)
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> OperationResult<DeleteObjectsOutput> {
        self.delete_many(request.input).map(S3Response::new)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> OperationResult<CreateMultipartUploadOutput> {
        self.start_upload(request.input).map(S3Response::new)
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> OperationResult<UploadPartOutput> {
        self.put_part(request).await.map(S3Response::new)
    }

    async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> OperationResult<UploadPartCopyOutput> {
        self.copy_part(request.input).map(S3Response::new)
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> OperationResult<CompleteMultipartUploadOutput> {
        self.finish_upload(request.input).map(S3Response::new)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> OperationResult<AbortMultipartUploadOutput> {
        self.abort_upload(&request.input).map(S3Response::new)
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> OperationResult<ListPartsOutput> {
        self.parts(request.input).map(S3Response::new)
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> OperationResult<ListMultipartUploadsOutput> {
        self.unfinished(request.input).map(S3Response::new)
    }

    async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> OperationResult<GetObjectAttributesOutput> {
        self.attributes(request.input).map(S3Response::new)
    }

    async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> OperationResult<ListObjectVersionsOutput> {
        self.list_versions(request.input).map(S3Response::new)
    }

    async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> OperationResult<GetObjectTaggingOutput> {
        self.get_tags(request.input).map(S3Response::new)
    }

    async fn put_object_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> OperationResult<PutObjectTaggingOutput> {
        self.put_tags(request.input).map(S3Response::new)
    }

    async fn delete_object_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> OperationResult<DeleteObjectTaggingOutput> {
        self.delete_tags(request.input).map(S3Response::new)
    }

    async fn get_bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> OperationResult<GetBucketAclOutput> {
        self.storage.backend.check_bucket(&request.input.bucket)?;
        let grants = Some(private_grants());
        Ok(S3Response::new(GetBucketAclOutput { grants, owner: Some(owner()) }))
    }

    async fn get_object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> OperationResult<GetObjectAclOutput> {
        check_version(request.input.version_id.as_deref())?;
        self.storage.backend.open(&request.input.bucket, &request.input.key)?;
        let grants = Some(private_grants());
        Ok(S3Response::new(GetObjectAclOutput { grants, owner: Some(owner()), ..Default::default() }))
    }

    /// A canned list that is not private is refused before this.
    async fn put_bucket_acl(
        &self,
        request: S3Request<PutBucketAclInput>,
    ) -> OperationResult<PutBucketAclOutput> {
        self.storage.backend.check_bucket(&request.input.bucket)?;
        match request.input.access_control_policy {
            None => Ok(S3Response::new(PutBucketAclOutput::default())),
            Some(_) => Err(s3_error!(NotImplemented, "this origin has no access lists")),
        }
    }

    /// A canned list that is not private is refused before this.
    async fn put_object_acl(
        &self,
        request: S3Request<PutObjectAclInput>,
    ) -> OperationResult<PutObjectAclOutput> {
        check_version(request.input.version_id.as_deref())?;
        self.storage.backend.open(&request.input.bucket, &request.input.key)?;
        match request.input.access_control_policy {
            None => Ok(S3Response::new(PutObjectAclOutput::default())),
            Some(_) => Err(s3_error!(NotImplemented, "this origin has no access lists")),
        }
    }

    /// No status: the bucket never had versions.
    async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> OperationResult<GetBucketVersioningOutput> {
        self.storage.backend.check_bucket(&request.input.bucket)?;
        Ok(S3Response::new(GetBucketVersioningOutput::default()))
    }
}
