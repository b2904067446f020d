//! The name that somebody who mistyped one most likely meant.

/// The candidate with the fewest slips of the keyboard from `name` (at most a third of its letters, at least one);
/// failing that, the first of which `name` is a beginning. None when nothing is near.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.trim_start_matches('-').to_ascii_lowercase().replace('_', "-");
    let allowed = (name.chars().count() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    let mut longer = None;
    for candidate in candidates {
        let slips = slips(&name, candidate);
        if slips <= allowed && best.is_none_or(|(fewest, _)| slips < fewest) {
            best = Some((slips, candidate));
        }
        if name.len() >= 2 && candidate.starts_with(&name) {
            longer = longer.or(Some(candidate));
        }
    }
    best.map(|(_, candidate)| candidate).or(longer)
}

/// Insertions, deletions, replacements and swaps of neighbours between two words (optimal string alignment).
fn slips(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let names = ["part-size", "parallel", "shards", "region", "retries", "no-verify"];
        let table: &[(&str, Option<&str>)] = &[
            ("part-size", Some("part-size")),
            ("partsize", Some("part-size")),
            ("part_size", Some("part-size")),
            ("--part-sizes", Some("part-size")),
            ("part", Some("part-size")),
            ("par", Some("part-size")),
            ("paralel", Some("parallel")),
            ("retires", Some("retries")),
            ("SHARDS", Some("shards")),
            ("reg", Some("region")),
            ("x", None),
            ("", None),
            ("colour", None),
            ("concurrency", None),
        ];
        for &(name, found) in table {
            assert_eq!(nearest(name, names), found, "{name:?}");
        }
    }
}
