//! A store of objects that are nowhere: their bytes are computed from their offset. Read-only.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use s3s::{S3Error, S3Result, s3_error};

use crate::backend::{About, Backend, ListStep, ListVisitor, ListedObject, no_bucket, no_key};
use crate::crcs::{Crcs, KnownCrcs};
use crate::draft::{Blob, Draft};
use crate::object::{ByteSource, Object, ObjectKind, ObjectMetadata};
use crate::pattern;
use crate::series::Series;

/// Objects by bucket.
pub(crate) struct Synthetic {
    buckets: BTreeMap<String, Bucket>,
    /// CRCs of objects in rows that were asked for, by where their bytes begin in the pattern and their
    /// sizes.
    crcs: Mutex<HashMap<(u64, u64), Computed>>,
}

/// CRCs of objects in rows that are remembered: some 100 bytes each.
const REMEMBERED: usize = 100_000;

#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Entry>,
    rows: Vec<Series>,
}

struct Entry {
    size: u64,
    crcs: Computed,
}

/// Computed at the first request.
type Computed = Arc<OnceLock<Crcs>>;

impl Synthetic {
    /// Objects as (bucket, key, size in bytes).
    pub(crate) fn new(objects: Vec<(String, String, u64)>) -> io::Result<Synthetic> {
        let mut buckets = BTreeMap::<String, Bucket>::new();
        for (bucket, key, size) in objects {
            check(&bucket, &key, size)?;
            let entry = Entry { size, crcs: Arc::default() };
            buckets.entry(bucket).or_default().objects.insert(key, entry);
        }
        Ok(Synthetic { buckets, crcs: Mutex::default() })
    }

    /// With these rows, too. A key that is there twice is that of the single object, or of the earlier row.
    pub(crate) fn with_rows(mut self, rows: Vec<Series>) -> io::Result<Synthetic> {
        for row in rows {
            check(&row.bucket, &row.key(0), row.size)?;
            self.buckets.entry(row.bucket.clone()).or_default().rows.push(row);
        }
        Ok(self)
    }

    fn bucket(&self, bucket: &str) -> S3Result<&Bucket> {
        self.buckets.get(bucket).ok_or_else(|| no_bucket(bucket))
    }

    fn crcs_in_row(&self, shift: u64, size: u64) -> Computed {
        let mut crcs = self.crcs.lock().unwrap_or_else(PoisonError::into_inner);
        if crcs.len() >= REMEMBERED {
            crcs.clear();
        }
        crcs.entry((shift, size)).or_default().clone()
    }
}

fn check(bucket: &str, key: &str, size: u64) -> io::Result<()> {
    let refused = match () {
        () if !s3s::path::check_bucket_name(bucket) => crate::backend::BUCKET_RULE,
        () if key.is_empty() || !s3s::path::check_key(key) => "a key has 1 to 1024 bytes",
        () if i64::try_from(size).is_err() => "no object is larger than 2^63 - 1 bytes",
        () => return Ok(()),
    };
    let text = format!("synthetic object {bucket}/{key} of {size} bytes: {refused}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

impl Bucket {
    /// The size of an object, and its CRCs where it is no object of a row.
    fn find(&self, key: &str) -> Option<(u64, Option<&Computed>)> {
        if let Some(entry) = self.objects.get(key) {
            return Some((entry.size, Some(&entry.crcs)));
        }
        self.rows.iter().find(|row| row.contains(key)).map(|row| (row.size, None))
    }

    /// Key and size of the first object that is not before `bound`.
    fn seek(&self, bound: &str) -> Option<(String, u64)> {
        let single = self.objects.range::<str, _>((Bound::Included(bound), Bound::Unbounded)).next();
        let single = single.map(|(key, entry)| (key.clone(), entry.size));
        let rows = self.rows.iter().filter_map(|row| Some((row.key(row.seek(bound)?), row.size)));
        // Of several with one key the first comes first.
        single.into_iter().chain(rows).min_by(|(one, _), (other, _)| one.cmp(other))
    }
}

impl Backend for Synthetic {
    fn buckets(&self) -> S3Result<Vec<(String, SystemTime)>> {
        Ok(self.buckets.keys().map(|name| (name.clone(), modified())).collect())
    }

    fn check_bucket(&self, bucket: &str) -> S3Result<()> {
        self.bucket(bucket).map(drop)
    }

    fn create_bucket(&self, bucket: &str) -> S3Result<()> {
        match self.buckets.contains_key(bucket) {
            true => Err(s3_error!(BucketAlreadyOwnedByYou, "the bucket {bucket} is there already")),
            false => Err(read_only()),
        }
    }

    fn delete_bucket(&self, bucket: &str) -> S3Result<()> {
        self.bucket(bucket)?;
        Err(read_only())
    }

    fn open(&self, bucket: &str, key: &str) -> S3Result<Object> {
        let (size, crcs) = self.bucket(bucket)?.find(key).ok_or_else(|| no_key(bucket, key))?;
        let shift = pattern::shift(bucket, key);
        let computed = crcs.cloned().unwrap_or_else(|| self.crcs_in_row(shift, size));
        Ok(Object {
            size,
            etag: etag(shift, size),
            modified: modified(),
            metadata: Arc::default(),
            source: ByteSource::Pattern { shift },
            known_crcs: KnownCrcs::Pattern { shift, size, computed },
            provenance: Arc::default(),
        })
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, visit: &mut ListVisitor<'_>) -> S3Result<()> {
        let found = self.bucket(bucket)?;
        // Nothing is between a key and the same with a zero behind it.
        let mut bound = if after >= prefix { format!("{after}\0") } else { prefix.to_owned() };
        while let Some((key, size)) = found.seek(&bound)
            && key.starts_with(prefix)
        {
            let etag = etag(pattern::shift(bucket, &key), size);
            bound = format!("{key}\0");
            let (modified, kind, storage_class) = (modified(), ObjectKind::Normal, None);
            match visit(ListedObject { key, size, etag, modified, kind, storage_class }) {
                ListStep::More => {}
                ListStep::Stop => break,
                ListStep::Skip(folded) => bound = behind(folded),
            }
        }
        Ok(())
    }

    fn draft(&self, bucket: &str, _: &str) -> S3Result<Draft> {
        self.bucket(bucket)?;
        Err(read_only())
    }

    fn publish(&self, _: &str, _: &str, _: &[&Blob], _: About) -> S3Result<()> {
        Err(read_only())
    }

    fn describe(&self, _: &str, _: &str, _: Arc<ObjectMetadata>) -> S3Result<()> {
        Err(read_only())
    }

    fn delete(&self, bucket: &str, _: &str) -> S3Result<()> {
        self.bucket(bucket)?;
        Err(read_only())
    }
}

/// The least text that is behind all that start with a prefix.
fn behind(prefix: String) -> String {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            chars.push(next);
            return chars.into_iter().collect();
        }
    }
    // Of nothing but the last character: no key is as long as this.
    char::MAX.to_string().repeat(1025)
}

fn read_only() -> S3Error {
    s3_error!(
        AccessDenied,
        "synthetic objects cannot be written; start the origin with --sink to have them taken and forgotten"
    )
}

/// Bytes depend on shift and size alone, and so does the ETag.
fn etag(shift: u64, size: u64) -> String {
    format!("synthetic-{shift:x}-{size:x}")
}

/// 2026-01-01: the bytes never change, so neither does the time, whenever the origin is started.
fn modified() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> Synthetic {
        let single = |key: &str| ("bucket".to_owned(), key.to_owned(), 7);
        let row = |pattern: &str, count| Series::new("bucket", pattern, count, 9).unwrap();
        let singles = ["a", "p/05", "p/055", "z/\u{10ffff}/1", "z/\u{10ffff}\u{10ffff}"].map(single);
        let rows = vec![row("p/%02d", 100), row("p/%d", 10), row("p/q%03d/x", 300)];
        Synthetic::new(singles.to_vec()).unwrap().with_rows(rows).unwrap()
    }

    /// Every key with its size, as they are listed; those are skipped that start as the first with this
    /// start.
    fn listed(prefix: &str, after: &str, skipped: &str) -> Vec<(String, u64)> {
        let mut listed = Vec::new();
        let mut visit = |one: ListedObject| {
            let skip = !skipped.is_empty() && one.key.starts_with(skipped);
            listed.push((one.key, one.size));
            if skip { ListStep::Skip(skipped.to_owned()) } else { ListStep::More }
        };
        store().list("bucket", prefix, after, &mut visit).unwrap();
        listed
    }

    #[test]
    fn singles_and_rows_are_listed_as_one_in_order() {
        let mut all = BTreeMap::new();
        let keys = (0..300).map(|n| format!("p/q{n:03}/x"));
        let keys = keys.chain((0..10).map(|n| format!("p/{n}"))).chain((0..100).map(|n| format!("p/{n:02}")));
        all.extend(keys.map(|key| (key, 9)));
        for single in ["a", "p/05", "p/055", "z/\u{10ffff}/1", "z/\u{10ffff}\u{10ffff}"] {
            all.insert(single.to_owned(), 7);
        }
        for prefix in ["", "p/", "p/0", "p/q1", "p/05", "z", "q"] {
            for after in ["", "a", "p/05", "p/9", "p/q123/x", "z"] {
                let expected: Vec<(String, u64)> = all
                    .iter()
                    .filter(|(key, _)| key.starts_with(prefix) && (after.is_empty() || key.as_str() > after))
                    .map(|(key, size)| (key.clone(), *size))
                    .collect();
                assert_eq!(listed(prefix, after, ""), expected, "{prefix} {after}");
            }
        }
        for (key, size) in &all {
            assert_eq!(store().open("bucket", key).unwrap().size, *size, "{key}");
        }
        assert!(store().open("bucket", "p/100").is_err());
    }

    #[test]
    fn what_is_folded_is_jumped_over() {
        let keys = |skipped| listed("", "", skipped).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(keys("p/"), ["a", "p/0", "z/\u{10ffff}/1", "z/\u{10ffff}\u{10ffff}"]);
        assert_eq!(keys("z/\u{10ffff}").last().unwrap(), "z/\u{10ffff}/1");
    }
}
