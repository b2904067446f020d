//! The dialect of INI that AWS's and Alibaba Cloud's own tools write, with the line of every value.
//!
//! AWS nests by indentation: below `s3 =`, the indented line `addressing_style = path` is read as
//! `s3.addressing_style`. A general INI crate gives neither that nor lines. What is no line of this dialect
//! is passed over, and the first of them told: who looks for settings goes on, who looks for keys does not.

/// One `[name]` and what stands below it.
#[derive(Debug)]
pub(crate) struct IniSection {
    pub name: String,
    pub entries: Vec<IniEntry>,
}

/// One value.
#[derive(Debug)]
pub(crate) struct IniEntry {
    /// In lower case; `outer.inner` for what is indented.
    pub key: String,
    pub value: String,
    /// From 1.
    pub line: usize,
}

impl IniSection {
    /// The last value of that name, as the last one wins with AWS.
    pub fn get(&self, key: &str) -> Option<&IniEntry> {
        self.entries.iter().rfind(|entry| entry.key == key)
    }
}

/// A line that is none of the dialect. It is not quoted: it may be a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    /// From 1.
    pub line: usize,
    pub what: &'static str,
}

/// All sections in order, those of one name as one, and the first line that is none of the dialect.
pub(crate) fn parse(text: &str) -> (Vec<IniSection>, Option<SyntaxError>) {
    let mut sections: Vec<IniSection> = Vec::new();
    let mut error = None;
    let mut current = None;
    // How far in the last key of the section stands, and its name where the line has no value.
    let mut outer: Option<(usize, Option<String>)> = None;
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let bare = line.trim();
        if bare.is_empty() || bare.starts_with(['#', ';']) {
            continue;
        }
        let mut passed_over = |what| {
            error.get_or_insert(SyntaxError { line: at + 1, what });
        };
        if let Some(title) = bare.strip_prefix('[') {
            let Some((title, _)) = title.split_once(']') else {
                passed_over("the section's ] is missing");
                current = None;
                continue;
            };
            current = Some(section(&mut sections, name(title)));
            outer = None;
            continue;
        }
        let Some(section) = current.map(|at: usize| &mut sections[at]) else {
            passed_over("a setting stands before any [section]");
            continue;
        };
        let indent = line.len() - line.trim_start().len();
        let goes_on = outer.as_ref().filter(|(outer, _)| indent > *outer);
        let key = match (goes_on, pair(bare)) {
            (Some((_, Some(outer))), Some((key, value))) => (format!("{outer}.{key}"), value),
            // A value that goes on in the next line: none that is read here does.
            (Some(_), _) => continue,
            (None, None) => {
                passed_over("neither a section nor NAME = VALUE");
                continue;
            }
            (None, Some((key, value))) => {
                outer = Some((indent, value.is_empty().then(|| key.clone())));
                (key, value)
            }
        };
        section.entries.push(IniEntry { key: key.0, value: key.1, line: at + 1 });
    }
    (sections, error)
}

/// Where the section of that name is.
fn section(sections: &mut Vec<IniSection>, name: String) -> usize {
    let known = sections.iter().position(|section| section.name == name);
    known.unwrap_or_else(|| {
        sections.push(IniSection { name, entries: Vec::new() });
        sections.len() - 1
    })
}

/// White space within a title is narrowed to one space.
fn name(title: &str) -> String {
    title.split_whitespace().map(|word| word.trim_matches(['"', '\''])).collect::<Vec<_>>().join(" ")
}

fn pair(line: &str) -> Option<(String, String)> {
    let (key, value) = line.split_once('=')?;
    let key = key.trim().to_ascii_lowercase();
    // A comment behind a value needs white space before it: a `#` within a value is the value's. A command
    // line is whole: its quotes may hold anything.
    let comment = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark)).min();
    let value = match comment {
        Some(at) if key != "credential_process" => &value[..at],
        _ => value,
    };
    Some((key, value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_their_lines() {
        let text = "stray = 1\n[profile a]\nRegion = x # why\n  goes on = here\ns3 =\n  addressing_style = path\n\n  ; no\n\
                    \tmax = 2\nendpoint_url=http://h#1\nregion = y\n[ profile  \"b\" ]\nnonsense\nempty =\n";
        let (sections, error) = parse(text);
        let shown: Vec<String> = sections
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
        assert_eq!(error, Some(SyntaxError { line: 1, what: "a setting stands before any [section]" }));
        assert_eq!(sections[0].get("region").map(|entry| entry.value.as_str()), Some("y"));
    }

    #[test]
    fn sections_and_slips() {
        let check = |text: &str, expected: &str, error: Option<usize>| {
            let (sections, passed_over) = parse(text);
            let shown: Vec<String> = sections
                .iter()
                .flat_map(|section| {
                    section.entries.iter().map(|e| format!("{}.{}={}", section.name, e.key, e.value))
                })
                .collect();
            assert_eq!(
                (shown.join(" ").as_str(), passed_over.map(|error| error.line)),
                (expected, error),
                "{text}"
            );
        };
        check("  [a]\n  x=1\n  y=2\n", "a.x=1 a.y=2", None);
        check("[a]\n  s =\n    x=1\n  y=2\n", "a.s= a.s.x=1 a.y=2", None);
        check("[a]\nx=1\n[b]\ny=1\n[a]\nx=2\n", "a.x=1 a.x=2 b.y=1", None);
        check(
            "[a]\nx=1 ; why\ncredential_process = sh -c 'true ; cat f' # x\n",
            "a.x=1 a.credential_process=sh -c 'true ; cat f' # x",
            None,
        );
        check("[a]\n[b\nx=1\n[c]\ny=1", "c.y=1", Some(2));
        check("[a]\nx=1\nnonsense\ny=1", "a.x=1 a.y=1", Some(3));
    }

    #[test]
    fn nothing_upsets_it() {
        for text in ["", "[", "[]", "[x", "=", "[x]\n=", "[x]\n = ", "\u{feff}[x]\na=1", "[x]\n\u{0}=\u{0}"] {
            parse(text);
        }
    }
}
