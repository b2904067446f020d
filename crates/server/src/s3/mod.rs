//! S3's operations as `s3s` hands them over, each answered in the module of its kind.

mod bucket;
pub(crate) mod dated;
mod get;
mod multipart;
mod put;

use std::sync::Arc;

use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};

use crate::stock::Stock;

/// The S3 that an origin speaks over its stock.
pub(crate) struct Dialect {
    pub stock: Arc<Stock>,
}

type Answer<T> = S3Result<S3Response<T>>;

#[async_trait::async_trait]
impl S3 for Dialect {
    async fn list_buckets(&self, _: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        self.buckets().map(S3Response::new)
    }

    async fn head_bucket(&self, request: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.stock.shelf.check_bucket(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn create_bucket(&self, request: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        self.stock.shelf.create_bucket(&request.input.bucket)?;
        let location = Some(format!("/{}", request.input.bucket));
        Ok(S3Response::new(CreateBucketOutput { location }))
    }

    async fn delete_bucket(&self, request: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        self.stock.shelf.delete_bucket(&request.input.bucket)?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> Answer<GetBucketLocationOutput> {
        self.stock.shelf.check_bucket(&request.input.bucket)?;
        // Empty means us-east-1.
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    async fn list_objects_v2(&self, request: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        self.list_v2(request.input).map(S3Response::new)
    }

    async fn list_objects(&self, request: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        self.list_v1(request.input).map(S3Response::new)
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        self.get(request.input).map(S3Response::new)
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        self.head(request.input).map(S3Response::new)
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        self.put(request).await.map(S3Response::new)
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        self.copy(request.input).map(S3Response::new)
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        self.stock.shelf.delete(&request.input.bucket, &request.input.key)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(&self, request: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        self.delete_many(request.input).map(S3Response::new)
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        self.start_upload(request.input).map(S3Response::new)
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        self.put_part(request).await.map(S3Response::new)
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        self.finish_upload(request.input).map(S3Response::new)
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        self.abort_upload(&request.input).map(S3Response::new)
    }

    async fn list_parts(&self, request: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        self.parts(request.input).map(S3Response::new)
    }

    async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> Answer<ListMultipartUploadsOutput> {
        self.unfinished(request.input).map(S3Response::new)
    }
}
