//! A walk over an XML document: each element's path and text, in the order in which they end.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};

use crate::listing::XmlError;
use crate::words;

/// Nothing that S3 answers is nested deeper than five.
const DEEPEST: usize = 32;

/// Calls `visit` with the path (`Error/Code`: local names from the root) and the text of each element as it
/// ends. Text is unescaped and otherwise as written, since white space may be part of a key; that of an
/// element with children is what stands behind the last of them.
///
/// # Errors
/// A document that is not well-formed or ends early, after `visit` has seen all that stands before; or what
/// `visit` returns.
pub fn walk(xml: &[u8], mut visit: impl FnMut(&str, &str) -> Result<(), XmlError>) -> Result<(), XmlError> {
    let document = std::str::from_utf8(xml).map_err(|_| malformed("not UTF-8"))?;
    let mut reader = Reader::from_str(document);
    // Servers that write <Prefix/> mean <Prefix></Prefix>.
    reader.config_mut().expand_empty_elements = true;
    let (mut path, mut parents, mut text) = (String::new(), Vec::new(), String::new());
    loop {
        match reader.read_event().map_err(malformed)? {
            Event::Start(_) if parents.len() == DEEPEST => return Err(malformed("nested too deep")),
            Event::Start(element) => {
                let name = element.local_name().into_inner();
                // quick-xml takes any bytes for a name; one of these would make another element's path.
                if name.is_empty() || name.contains('/') {
                    return Err(malformed("an element without a proper name"));
                }
                parents.push(path.len());
                if !path.is_empty() {
                    path.push('/');
                }
                path.push_str(name);
                text.clear();
            }
            Event::End(_) => {
                visit(&path, &text)?;
                path.truncate(parents.pop().unwrap_or(0));
                text.clear();
            }
            Event::Text(piece) => text.push_str(&piece.xml10_content()),
            Event::CData(piece) => text.push_str(&piece.xml10_content()),
            Event::GeneralRef(reference) => text.push_str(&resolve(&reference)?),
            Event::Eof if parents.is_empty() => return Ok(()),
            Event::Eof => return Err(malformed("it ends early")),
            _ => {}
        }
    }
}

/// What `&quot;` or `&#34;` stands for. Entities that a document declares itself are refused: S3 has none,
/// and they are a known way to make a parser swell.
fn resolve(reference: &BytesRef<'_>) -> Result<String, XmlError> {
    if let Some(character) = reference.resolve_char_ref().map_err(malformed)? {
        return Ok(character.into());
    }
    let name = reference.xml10_content();
    let resolved = resolve_predefined_entity(&name).map(str::to_owned);
    resolved.ok_or_else(|| malformed(format!("unknown entity &{name};")))
}

fn malformed(why: impl std::fmt::Display) -> XmlError {
    XmlError::Malformed(excerpt(&why.to_string()))
}

/// A document's words in an error.
pub(crate) fn excerpt(text: &str) -> String {
    words::excerpt(text, 200)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leaves(xml: &str) -> Result<Vec<String>, XmlError> {
        let mut seen = Vec::new();
        walk(xml.as_bytes(), |path, text| {
            seen.push(format!("{path}={text}"));
            Ok(())
        })
        .map(|()| seen)
    }

    #[test]
    fn walks() {
        let rows: [(&str, &[&str]); 5] = [
            ("<a><b>x</b><c/></a>", &["a/b=x", "a/c=", "a="]),
            ("<?xml version='1.0'?>\n<n:a xmlns:n='u'><n:b> x </n:b>\n</n:a>\n", &["a/b= x ", "a=\n"]),
            ("<a>&quot;&#65;&amp;<![CDATA[<&]]></a>", &["a=\"A&<&"]),
            ("<a><!-- no -->x</a>", &["a=x"]),
            ("", &[]),
        ];
        for (xml, expected) in rows {
            assert_eq!(leaves(xml).expect(xml), expected, "{xml}");
        }
    }

    #[test]
    fn refuses() {
        for xml in ["<a>", "<a></b>", "<a>&nope;</a>", "<a", "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>"] {
            assert!(leaves(xml).is_err(), "{xml}");
        }
        assert!(leaves(&"<a>".repeat(1000)).is_err());
        assert!(walk(b"<a>\xff</a>", |_, _| Ok(())).is_err());
    }

    #[test]
    fn an_element_has_a_name_and_no_path() {
        for xml in [
            "<></>",
            "< x></ x>",
            "<n:></n:>",
            "< ><Error/></ >",
            "<Error/Code>x</Error/Code>",
            "<a><b/c/></a>",
        ] {
            assert!(leaves(xml).is_err(), "{xml}");
        }
        assert_eq!(
            leaves("<a />").ok(),
            leaves("<a></a>").ok(),
            "a slash that ends an element is none of its name"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(xml in "[<>a-c/&;#!x0-9\"' \\[\\]-]{0,60}") {
            let _ = leaves(&xml);
        }
    }
}
