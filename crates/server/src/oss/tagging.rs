//! Get, Put and DeleteObjectTagging.

use s3s::Body;

use super::refusal::Refusal;
use super::request::OssRequest;
use super::response::OssResponse;
use super::write::document;
use super::xml::{self, XmlDocument};
use super::{At, OssDialect};
use crate::tags;

impl OssDialect {
    pub(super) fn get_tags(&self, (bucket, key): At<'_>) -> Result<OssResponse, Refusal> {
        let object = self.storage.backend.open(bucket, key)?;
        let mut document = XmlDocument::new("Tagging");
        document.group("TagSet", |set| {
            for (key, value) in &object.metadata.tags {
                set.group("Tag", |tag| {
                    tag.leaf("Key", key);
                    tag.leaf("Value", value);
                });
            }
        });
        Ok(OssResponse::xml(document))
    }

    pub(super) async fn put_tags(
        &self,
        request: &OssRequest,
        (bucket, key): At<'_>,
        body: &mut Body,
    ) -> Result<OssResponse, Refusal> {
        let (mut pairs, mut name, mut text) = (Vec::new(), String::new(), String::new());
        xml::walk(&document(request, body).await?, |path, found| match path {
            "Tagging/TagSet/Tag/Key" => name = found.to_owned(),
            "Tagging/TagSet/Tag/Value" => text = found.to_owned(),
            "Tagging/TagSet/Tag" => pairs.push((std::mem::take(&mut name), std::mem::take(&mut text))),
            _ => {}
        })?;
        let tags = tags::collect(pairs)?;
        self.storage.describe(bucket, key, |metadata| metadata.tags = tags)?;
        Ok(OssResponse::ok())
    }

    pub(super) fn delete_tags(&self, (bucket, key): At<'_>) -> Result<OssResponse, Refusal> {
        self.storage.describe(bucket, key, |metadata| metadata.tags.clear())?;
        Ok(OssResponse::no_content())
    }
}
