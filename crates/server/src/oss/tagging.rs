//! Get, Put and DeleteObjectTagging.

use s3s::Body;

use super::answer::Answer;
use super::asked::Asked;
use super::refusal::Refusal;
use super::write::document;
use super::xml::{self, Document};
use super::{At, Oss};
use crate::tags;

impl Oss {
    pub(super) fn get_tags(&self, (bucket, key): At<'_>) -> Result<Answer, Refusal> {
        let object = self.stock.shelf.open(bucket, key)?;
        let mut document = Document::new("Tagging");
        document.group("TagSet", |set| {
            for (key, value) in &object.kept.tags {
                set.group("Tag", |tag| {
                    tag.leaf("Key", key);
                    tag.leaf("Value", value);
                });
            }
        });
        Ok(Answer::xml(document))
    }

    pub(super) async fn put_tags(
        &self,
        asked: &Asked,
        (bucket, key): At<'_>,
        body: &mut Body,
    ) -> Result<Answer, Refusal> {
        let (mut pairs, mut name, mut text) = (Vec::new(), String::new(), String::new());
        xml::walk(&document(asked, body).await?, |path, found| match path {
            "Tagging/TagSet/Tag/Key" => name = found.to_owned(),
            "Tagging/TagSet/Tag/Value" => text = found.to_owned(),
            "Tagging/TagSet/Tag" => pairs.push((std::mem::take(&mut name), std::mem::take(&mut text))),
            _ => {}
        })?;
        let tags = tags::collect(pairs)?;
        self.stock.describe(bucket, key, |kept| kept.tags = tags)?;
        Ok(Answer::ok())
    }

    pub(super) fn delete_tags(&self, (bucket, key): At<'_>) -> Result<Answer, Refusal> {
        self.stock.describe(bucket, key, |kept| kept.tags.clear())?;
        Ok(Answer::no_content())
    }
}
