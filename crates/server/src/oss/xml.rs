//! XML, written and read: flat documents of few elements.

use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::Event;

use super::refusal::Refusal;
use crate::characters::with_references;

/// A document while it is written; its root is closed at the end.
pub(super) struct XmlDocument {
    text: String,
    open: Vec<&'static str>,
}

impl XmlDocument {
    pub(super) fn new(root: &'static str) -> XmlDocument {
        let mut document =
            XmlDocument { text: "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned(), open: Vec::new() };
        document.open(root);
        document
    }

    fn open(&mut self, name: &'static str) {
        self.text.push_str(&format!("<{name}>"));
        self.open.push(name);
    }

    fn close(&mut self) {
        let name = self.open.pop().expect("what is closed was opened");
        self.text.push_str(&format!("</{name}>"));
    }

    /// An element with children.
    pub(super) fn group(&mut self, name: &'static str, fill: impl FnOnce(&mut XmlDocument)) {
        self.open(name);
        fill(self);
        self.close();
    }

    /// An element with text.
    pub(super) fn leaf(&mut self, name: &'static str, text: &str) {
        self.group(name, |document| document.text(text));
    }

    /// An element for a value that there may be.
    pub(super) fn leaf_if(&mut self, name: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.leaf(name, text);
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.text.push_str(&with_references(&escape(text)));
    }

    pub(super) fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text
    }
}

/// Shows the path (`Delete/Object/Key`) and the text of each element as it ends; `MalformedXML` when it is
/// none.
pub(super) fn walk(document: &[u8], mut visit: impl FnMut(&str, &str)) -> Result<(), Refusal> {
    let malformed = |why: String| Refusal::new(400, "MalformedXML", format!("the body is no XML: {why}"));
    let document = std::str::from_utf8(document).map_err(|error| malformed(error.to_string()))?;
    let mut reader = Reader::from_str(document);
    reader.config_mut().expand_empty_elements = true;
    let (mut path, mut text) = (Vec::<String>::new(), String::new());
    loop {
        match reader.read_event().map_err(|error| malformed(error.to_string()))? {
            Event::Start(element) => {
                path.push(element.local_name().into_inner().to_owned());
                text.clear();
            }
            Event::End(_) => {
                visit(&path.join("/"), &text);
                path.pop();
                text.clear();
            }
            Event::Text(blob) => text.push_str(&blob.xml10_content()),
            Event::CData(blob) => text.push_str(&blob.xml10_content()),
            Event::GeneralRef(reference) => {
                let character = reference.resolve_char_ref().map_err(|error| malformed(error.to_string()))?;
                let name = reference.xml10_content();
                match character {
                    Some(character) => text.push(character),
                    None => text.push_str(
                        resolve_predefined_entity(&name)
                            .ok_or_else(|| malformed(format!("&{name}; is not one of its entities")))?,
                    ),
                }
            }
            Event::Eof if path.is_empty() => return Ok(()),
            Event::Eof => return Err(malformed("it ends early".to_owned())),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let odd = " a&b<c>\"d'\u{fc}\r\u{1} ";
        let mut document = XmlDocument::new("Root");
        document.group("Group", |group| group.leaf("Leaf", odd));
        document.leaf("Empty", "");
        let mut seen = Vec::new();
        walk(document.finish().as_bytes(), |path, text| seen.push((path.to_owned(), text.to_owned())))
            .unwrap();
        assert_eq!(seen[0], ("Root/Group/Leaf".to_owned(), odd.to_owned()));
        assert_eq!(seen[2], ("Root/Empty".to_owned(), String::new()));
        for bad in ["<a>", "<a></b>", "<a>&unknown;</a>"] {
            assert!(walk(bad.as_bytes(), |_, _| {}).is_err(), "{bad}");
        }
    }
}
