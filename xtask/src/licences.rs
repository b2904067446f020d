//! Licences: our own crates carry ours, and every crate of the tree an allowed one.
//!
//! deny.toml holds the list for cargo-deny; it is read here too, so that the check holds where cargo-deny is
//! absent.

use crate::complaint::Complaint;
use crate::workspace::Package;

const OURS: &str = "MIT OR Apache-2.0";

/// Every member says its licence.
pub fn check_members(members: &[Package]) -> Vec<Complaint> {
    let without = members.iter().filter(|member| member.licence != OURS);
    without
        .map(|member| Complaint::new(&member.manifest, 0, "write `license.workspace = true` under [package]"))
        .collect()
}

/// Every crate offers at least one allowed licence for each of its parts.
pub fn check_tree(packages: &[Package], allowed: &[String]) -> Vec<Complaint> {
    let refused = packages.iter().filter(|package| !permitted(&package.licence, allowed));
    refused.map(complaint).collect()
}

/// The entries of `allow = [...]` under `[licenses]` of deny.toml.
pub fn allowed(deny: &str) -> Result<Vec<String>, String> {
    let missing = || "deny.toml: [licenses] has no `allow = [...]`".to_owned();
    let section = deny.split("[licenses]").nth(1).ok_or_else(missing)?;
    let list = section.split_once("allow = [").ok_or_else(missing)?.1;
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default());
    let entries: Vec<&str> = lines.take_while(|line| !line.trim_start().starts_with(']')).collect();
    Ok(entries.join(" ").split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

fn complaint(package: &Package) -> Complaint {
    let licence = if package.licence.is_empty() { "no licence" } else { &package.licence };
    let say = format!(
        "{licence}: not allowed; use another crate, or add the licence to deny.toml if it asks no more than MIT does"
    );
    Complaint::new(&format!("{} {}", package.name, package.version), 0, say)
}

/// Whether an SPDX expression can be satisfied. `/` is the `OR` of old manifests.
fn permitted(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut reader = Expression { tokens: &tokens, allowed };
    let permitted = reader.any_of();
    permitted && reader.tokens.is_empty()
}

struct Expression<'a> {
    tokens: &'a [&'a str],
    allowed: &'a [String],
}

impl Expression<'_> {
    fn any_of(&mut self) -> bool {
        let mut permitted = self.all_of();
        while self.take("OR") {
            permitted |= self.all_of();
        }
        permitted
    }

    fn all_of(&mut self) -> bool {
        let mut permitted = self.one();
        while self.take("AND") {
            permitted &= self.one();
        }
        permitted
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let permitted = self.any_of();
            return self.take(")") && permitted;
        }
        let Some((&licence, rest)) = self.tokens.split_first() else { return false };
        self.tokens = rest;
        if self.take("WITH")
            && let Some((&exception, rest)) = self.tokens.split_first()
        {
            self.tokens = rest;
            return self.allowed.contains(&format!("{licence} WITH {exception}"));
        }
        self.allowed.iter().any(|allowed| allowed == licence)
    }

    fn take(&mut self, token: &str) -> bool {
        let there = self.tokens.first() == Some(&token);
        if there {
            self.tokens = &self.tokens[1..];
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read() {
        let allowed =
            ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].map(str::to_owned);
        let table = [
            ("MIT", true),
            ("MIT OR Apache-2.0", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("GPL-3.0 AND MIT", false),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-2.0", false),
            ("MIT AND Apache-2.0 OR GPL-3.0", true),
            ("GPL-3.0 OR MIT AND MPL-2.0", false),
            ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
            ("MIT WITH Classpath-exception-2.0", false),
            ("", false),
            ("MIT OR", true),
            ("(MIT", false),
            ("MIT)", false),
            ("MIT MIT", false),
        ];
        for (expression, well) in table {
            assert_eq!(permitted(expression, &allowed), well, "{expression:?}");
        }
    }

    #[test]
    fn the_list_of_deny_toml_is_read() {
        let deny = "[advisories]\nx = [\"no\"]\n[licenses]\nallow = [\n  \"MIT\", # \"no\"\n  \"Apache-2.0\",\n]\n[bans]\ny = [\"no\"]\n";
        assert_eq!(allowed(deny).unwrap(), ["MIT", "Apache-2.0"]);
        assert!(allowed("[bans]\n").is_err());
    }

    #[test]
    fn crates_without_an_allowed_licence_are_named() {
        let package = |name: &str, licence: &str| Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: licence.to_owned(),
            ..Package::default()
        };
        let tree = [package("good", "MIT"), package("bad", "AGPL-3.0"), package("none", "")];
        let said: Vec<String> =
            check_tree(&tree, &["MIT".to_owned()]).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2);
        assert!(said[0].starts_with("bad 1.0.0: AGPL-3.0: not allowed"), "{said:?}");
        assert!(said[1].starts_with("none 1.0.0: no licence"), "{said:?}");
        assert_eq!(check_members(&tree).len(), 3);
        assert!(check_members(&[package("ours", OURS)]).is_empty());
    }
}
