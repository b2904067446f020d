//! The dialect of INI that AWS's and Alibaba Cloud's own tools write, with the line of every value.
//!
//! AWS nests by indentation: below `s3 =`, the indented line `addressing_style = path` is read as `s3.addressing_style`.
//! A general INI crate gives neither that nor lines. What is no line of this dialect is passed over, as those tools do.

/// One `[name]` and what stands below it.
#[derive(Debug)]
pub(crate) struct Section {
    pub name: String,
    pub entries: Vec<Entry>,
}

/// One value.
#[derive(Debug)]
pub(crate) struct Entry {
    /// In lower case; `outer.inner` for what is indented.
    pub key: String,
    pub value: String,
    /// From 1.
    pub line: usize,
}

impl Section {
    /// The last value of that name, as the last one wins with AWS.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().rfind(|entry| entry.key == key)
    }
}

/// All sections in order. Lines above the first have no section and are left out.
pub(crate) fn parse(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    // The key that indented lines belong to, while its own line has no value.
    let mut outer: Option<String> = None;
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = header(line) {
            sections.push(Section { name, entries: Vec::new() });
            outer = None;
            continue;
        }
        let (Some(section), Some((key, value))) = (sections.last_mut(), pair(bare)) else { continue };
        let key = match (&outer, line.starts_with([' ', '\t'])) {
            (Some(outer), true) => format!("{outer}.{key}"),
            // A value that goes on in the next line: none that is read here does.
            (None, true) if !section.entries.is_empty() => continue,
            _ => {
                outer = value.is_empty().then(|| key.clone());
                key
            }
        };
        section.entries.push(Entry { key, value, line: at + 1 });
    }
    sections
}

/// The name in `[ name ]`, white space within it narrowed to one space.
fn header(line: &str) -> Option<String> {
    let name = line.strip_prefix('[')?.split(']').next()?;
    Some(name.split_whitespace().map(|word| word.trim_matches(['"', '\''])).collect::<Vec<_>>().join(" "))
}

fn pair(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once('=')?;
    // A comment behind a value needs white space before it: a `#` within a value is the value's.
    let value = [" #", " ;", "\t#", "\t;"]
        .iter()
        .filter_map(|mark| value.find(mark))
        .min()
        .map_or(value, |at| &value[..at]);
    Some((key.trim().to_ascii_lowercase(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_their_lines() {
        let text = "stray = 1\n[profile a]\nRegion = x # why\n  goes on = here\ns3 =\n  addressing_style = path\n\n  ; no\n\
                    \tmax = 2\nendpoint_url=http://h#1\nregion = y\n[ profile  \"b\" ]\nnonsense\nempty =\n";
        let shown: Vec<String> = parse(text)
            .iter()
            .flat_map(|section| {
                section
                    .entries
                    .iter()
                    .map(|entry| format!("{}|{}|{}|{}", section.name, entry.key, entry.value, entry.line))
            })
            .collect();
        assert_eq!(
            shown,
            [
                "profile a|region|x|3",
                "profile a|s3||5",
                "profile a|s3.addressing_style|path|6",
                "profile a|s3.max|2|9",
                "profile a|endpoint_url|http://h#1|10",
                "profile a|region|y|11",
                "profile b|empty||14",
            ]
        );
        assert_eq!(parse(text)[0].get("region").map(|entry| entry.value.as_str()), Some("y"));
    }

    #[test]
    fn nothing_upsets_it() {
        for text in ["", "[", "[]", "[x", "=", "[x]\n=", "[x]\n = ", "\u{feff}[x]\na=1", "[x]\n\u{0}=\u{0}"] {
            parse(text);
        }
    }
}
