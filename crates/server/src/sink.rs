//! A store in front of another: reads go through, writes of objects are taken in, summed up and forgotten.

use std::sync::Arc;
use std::time::SystemTime;

use s3s::S3Result;

use crate::backend::{About, Backend, ListVisitor};
use crate::draft::{Blob, BlobPlace, Draft};
use crate::object::{Object, ObjectMetadata};

/// Objects may be written to any bucket, there or not: nothing is kept anyway. Buckets are the inner store's.
pub(crate) struct Sink {
    pub inner: Box<dyn Backend>,
}

impl Backend for Sink {
    fn buckets(&self) -> S3Result<Vec<(String, SystemTime)>> {
        self.inner.buckets()
    }

    fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        self.inner.check_bucket(bucket)
    }

    fn create_bucket(&self, bucket: &str) -> S3Result<()> {
        self.inner.create_bucket(bucket)
    }

    fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        self.inner.delete_bucket(bucket)
    }

    fn open(&self, bucket: &str, key: &str) -> S3Result<Object> {
        self.inner.open(bucket, key)
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut ListVisitor<'_>) -> S3Result<()> {
        self.inner.list(bucket, prefix, after, visit)
    }

    fn draft(&self, _: &str, _: &str) -> S3Result<Draft> {
        Ok(Draft::new(BlobPlace::Nowhere))
    }

    fn publish(&self, _: &str, _: &str, _: &[&Blob], _: About) -> S3Result<()> {
        Ok(())
    }

    fn describe(&self, _: &str, _: &str, _: Arc<ObjectMetadata>) -> S3Result<()> {
        Ok(())
    }

    fn delete(&self, _: &str, _: &str) -> S3Result<()> {
        Ok(())
    }
}
