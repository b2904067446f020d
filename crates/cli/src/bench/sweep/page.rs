//! A report as one self-contained HTML page: the template with its data in it.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use serde::Serialize;

use crate::failure::Failure;
use crate::signal::Interrupt;
use crate::temporary_files::TemporaryFiles;

/// Draws whatever data stands in it; the lab's own pages are made from the same one.
const TEMPLATE: &str = include_str!("../page.html");

/// Where the data goes, once.
const MARKER: &str = "/*DATA*/null/*END*/";

/// As many as Linux itself follows.
const MOST_LINKS: usize = 40;

/// A page that is to stand at a path.
pub struct ReportPage {
    path: PathBuf,
    temporary_files: TemporaryFiles,
}

impl ReportPage {
    /// Finds out whether it can be written, which is better known before a measurement than after it.
    pub fn new(path: &Path, interrupt: &Interrupt) -> Result<ReportPage, Failure> {
        let failed = |error: io::Error| Failure::local("write", path.display(), &error);
        if fs::metadata(path).is_ok_and(|known| !known.is_file()) {
            let failure = Failure::usage(format!("report: {}: is no file", path.display()));
            return Err(
                failure.with_hint("name a file: it is made new, or replaced when the report is whole")
            );
        }
        let page = ReportPage {
            path: behind_links(path).map_err(failed)?,
            temporary_files: interrupt.temporary_files(),
        };
        page.temporary_files.create(&page.temporary()).map_err(failed)?;
        Ok(page)
    }

    /// Makes it, whole or not at all.
    pub fn write(&self, data: &impl Serialize) -> Result<(), Failure> {
        self.replace(&html(data)).map_err(|error| Failure::local("write", self.path.display(), &error))
    }

    fn replace(&self, html: &str) -> io::Result<()> {
        let (temporary, mut file) = self.temporary_files.create(&self.temporary())?;
        // Whoever may read what stands there may read what replaces it, and nobody else.
        if let Ok(known) = fs::metadata(&self.path) {
            file.set_permissions(known.permissions())?;
        }
        file.write_all(html.as_bytes())?;
        file.sync_all()?;
        temporary.rename(&self.path)
    }

    /// Beside it, so that a rename can replace it at once.
    fn temporary(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        // A name may have 255 bytes; ours adds up to 20.
        let name: String = name.chars().take(50).collect();
        self.path.with_file_name(OsString::from(format!(".{name}.flatout-{}", process::id())))
    }
}

impl fmt::Display for ReportPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// The file that is meant, whether it is there or not: behind a link stands another.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            // From the folder of the link, unless it begins at the root.
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// No `<` of the data is left as one: `</script>` in a key would end the element.
fn html(data: &impl Serialize) -> String {
    let json = serde_json::to_string(data).expect("a report is a map with text for keys");
    TEMPLATE.replacen(MARKER, &json.replace('<', "\\u003c"), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_has_one_place_for_the_data() {
        let element = format!(r#"<script id="data" type="application/json">{MARKER}</script>"#);
        assert_eq!((TEMPLATE.matches(MARKER).count(), TEMPLATE.matches(&element).count()), (1, 1));
    }

    #[test]
    fn the_template_brings_everything_along() {
        for load in ["<link", "src=", "@import", "url(h", "url('h", "url(\"h", "fetch(", "XMLHttpRequest"] {
            assert!(!TEMPLATE.contains(load), "{load}");
        }
    }

    #[test]
    fn data_cannot_end_its_element() {
        let page = html(&["</script><!--", MARKER]);
        assert!(page.contains(r#"["\u003c/script>\u003c!--","/*DATA*/null/*END*/"]"#), "{page}");
    }
}
