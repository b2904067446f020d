//! The name that a mistyped one most likely stands for.

/// The candidate with the fewest typos from `name` (at most a third of its letters, at least one);
/// failing that, the first of which `name` is a beginning. None when nothing is near.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.trim_start_matches('-').to_ascii_lowercase().replace('_', "-");
    let allowed = (name.chars().count() / 3).max(1);
    let mut best: Option<(usize, &str)> = None;
    let mut longer = None;
    for candidate in candidates {
        let typos = strsim::osa_distance(&name, candidate);
        if typos <= allowed && best.is_none_or(|(fewest, _)| typos < fewest) {
            best = Some((typos, candidate));
        }
        if name.len() >= 2 && candidate.starts_with(&name) {
            longer = longer.or(Some(candidate));
        }
    }
    best.map(|(_, candidate)| candidate).or(longer)
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
