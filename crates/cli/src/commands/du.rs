//! `flatout du`: objects and bytes below a prefix or of a pattern, counted from a listing in constant memory.

use flatout_engine::{Dialect, Entry};
use flatout_settings::format_size;
use flatout_wire::location::Location;

use crate::args::Du;
use crate::commands::repeats::{counted, grouped};
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::select::Source;
use crate::{origin, outages};

pub fn run(args: &Du, console: &Console) -> Result<Exit, Failure> {
    let location = origin::location("count", &args.location)?;
    if location.bucket().is_none() {
        let failure = Failure::usage(format!("count: {location}: plain HTTP has no listing"));
        return Err(failure.with_hint("for a bucket write s3://BUCKET/PREFIX and --endpoint-url"));
    }
    let client = origin::client(console, &args.knobs, &[Dialect::of(&location)])?;
    outages::tell_without_bar(&client, console);
    // Wildcards may be part of a key: an object that is called so comes first.
    let source = match Source::is_pattern(&location) && client.stat(&location).is_err() {
        true => Source::pattern(&location, true)?,
        false => Source::prefix(&location, true),
    };
    let source = source.expect("only buckets come so far");
    let all = if args.recursive { usize::MAX } else { 0 };
    let levels = args.by_prefix.map_or(all, |levels| levels as usize);
    let mut count = Count {
        console,
        location: &location,
        is_in_bytes: args.bytes,
        // Folders are counted below the prefix that was named; a part of a name has none.
        tally: Tally::new(source.folder_bytes, levels),
    };
    for entry in client.list(&source.location, true)? {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) if count.tally.total.objects == 0 => return Err(error.into()),
            Err(error) => {
                let failure = Failure::from(error);
                let message = format!(
                    "{}: at least {}, {} bytes",
                    failure.message,
                    counted(count.tally.total.objects, "object"),
                    count.tally.total.bytes
                );
                let exit = if failure.exit == Exit::Refused { Exit::Refused } else { Exit::Incomplete };
                return Err(Failure { exit, message, ..failure });
            }
        };
        let path = entry.name().get(source.folder_bytes..).unwrap_or_default();
        if !source.means(&entry) || !args.filters.take(path) {
            continue;
        }
        if let Entry::Object(listed) = entry {
            for (folder, sums) in
                count.tally.add(&listed.key, listed.size).map_err(|()| unordered(&location))?
            {
                count.tell(&folder, sums)?;
            }
        }
    }
    for (folder, sums) in count.tally.close() {
        count.tell(&folder, sums)?;
    }
    let total = count.tally.total;
    count.tell(location.key(), total)?;
    Ok(Exit::Clean)
}

/// Sums over a sorted listing are made folder after folder; over another one they would be of pieces.
fn unordered(location: &Location) -> Failure {
    let failure = Failure {
        exit: Exit::Failed,
        kind: "unsupported".into(),
        message: format!(
            "count: {location}: the origin does not list in the order of keys: folders cannot be told apart"
        ),
        hint: None,
    };
    failure.with_hint("leave out -r and --by-prefix: the total needs no order")
}

struct Count<'a> {
    console: &'a Console,
    location: &'a Location,
    is_in_bytes: bool,
    tally: Tally,
}

impl Count<'_> {
    fn tell(&self, key: &str, sums: Sums) -> Result<(), Failure> {
        let of = self.location.with_key(key).expect("a bucket was listed");
        let size = if self.is_in_bytes { sums.bytes.to_string() } else { format_size(sums.bytes) };
        let (count, name) = (grouped(sums.objects), one_line(&of.to_string()));
        self.console.answer(&format!("{size:>14} {count:>14} {name}"))?;
        self.console.event(
            Carries::Lines,
            &events::Usage {
                key: key.to_owned(),
                source: of.to_string(),
                objects: sums.objects,
                bytes: sums.bytes,
            },
        )
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    objects: u64,
    bytes: u64,
}

impl Sums {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += bytes;
    }
}

/// Sums of folders whose end has not been seen: those that the last key lies in.
struct Tally {
    total: Sums,
    /// How much of each key is no folder of its own.
    start: usize,
    levels: usize,
    open: Vec<(String, Sums)>,
    last: String,
}

impl Tally {
    fn new(start: usize, levels: usize) -> Tally {
        Tally { total: Sums::default(), start, levels, open: Vec::new(), last: String::new() }
    }

    /// Counts an object; the folders that have ended before it, innermost first.
    ///
    /// # Errors
    /// Folders are wanted, and the key comes before the last one.
    fn add(&mut self, key: &str, bytes: u64) -> Result<Vec<(String, Sums)>, ()> {
        self.total.add(bytes);
        if self.levels == 0 {
            return Ok(Vec::new());
        }
        if key < self.last.as_str() {
            return Err(());
        }
        key.clone_into(&mut self.last);
        let still = self.open.iter().take_while(|(folder, _)| key.starts_with(folder.as_str())).count();
        let ended = self.open.split_off(still).into_iter().rev().collect();
        let slashes = key.char_indices().filter(|(at, found)| *found == '/' && *at >= self.start);
        for (at, _) in slashes.take(self.levels).skip(still) {
            self.open.push((key[..=at].to_owned(), Sums::default()));
        }
        self.open.iter_mut().for_each(|(_, sums)| sums.add(bytes));
        Ok(ended)
    }

    /// The folders that no key has ended, innermost first.
    fn close(&mut self) -> Vec<(String, Sums)> {
        std::mem::take(&mut self.open).into_iter().rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start: usize, levels: usize, keys: &[(&str, u64)], expected: &[(&str, u64, u64)]) {
        let mut tally = Tally::new(start, levels);
        let mut found = Vec::new();
        for (key, bytes) in keys {
            found.extend(tally.add(key, *bytes).expect("they are in order"));
        }
        found.extend(tally.close());
        let found: Vec<(&str, u64, u64)> =
            found.iter().map(|(folder, sums)| (folder.as_str(), sums.objects, sums.bytes)).collect();
        assert_eq!(found, expected);
        assert_eq!(tally.total.bytes, keys.iter().map(|(_, bytes)| bytes).sum::<u64>());
    }

    #[test]
    fn folders_have_what_lies_below_them() {
        let keys = [("a", 1), ("b/c", 2), ("b/d/e", 4), ("b/d/f", 8), ("b0", 16), ("c/d", 32)];
        check(0, 0, &keys, &[]);
        check(0, 1, &keys, &[("b/", 3, 14), ("c/", 1, 32)]);
        check(0, 2, &keys, &[("b/d/", 2, 12), ("b/", 3, 14), ("c/", 1, 32)]);
        check(0, usize::MAX, &[("a//b", 1)], &[("a//", 1, 1), ("a/", 1, 1)]);
        check(2, 1, &keys[1..4], &[("b/d/", 2, 12)]);
        check(0, 1, &[], &[]);
    }

    #[test]
    fn what_is_not_in_order_is_not_summed_by_folder() {
        let mut tally = Tally::new(0, 1);
        assert!(tally.add("b/x", 1).is_ok());
        assert!(tally.add("a/x", 1).is_err());
        let mut total = Tally::new(0, 0);
        assert!(total.add("b/x", 1).is_ok() && total.add("a/x", 1).is_ok());
        assert_eq!(total.total, Sums { objects: 2, bytes: 2 });
    }
}
