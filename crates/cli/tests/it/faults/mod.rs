//! The fault matrix: every bad day that the wind tunnel can make, for every command that it concerns, in both
//! dialects, plain and over TLS.
//!
//! The table is `table.rs`; docs/faults.md is written from it. A seed is one course of all faults:
//!
//! ```text
//! FLATOUT_SEEDS=100 cargo test -p flatout-cli --test it faults::    a hundred of them, one after the other
//! FLATOUT_SEED=7 FLATOUT_CELL=stall/file cargo test …                   one of them again, in the cells of such a name
//! FLATOUT_FAULTS_PAGE=write cargo test … faults::                       docs/faults.md anew
//! ```

mod cell;
mod log;
mod page;
mod run;
mod stored;
mod table;
mod uploads;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use cell::{Authority, Cell};
use table::{DIALECTS, Row, Seen, rows};

/// Cells mostly wait.
const AT_ONCE: usize = 24;
/// What `make test` runs.
const SEEDS: u64 = 1;
/// With so many seeds every cell has met with its day; with one or two only every row has: 0.8^8 of the
/// objects of eight parts pass where two answers in ten are bad.
const ENOUGH: u64 = 10;

#[test]
fn what_is_seen_on_bad_days_is_what_the_table_says() {
    let (rows, authority) = (rows(), Authority::new());
    let cells = cells(&rows, &authority);
    let (seeds, mut met) = (seeds(SEEDS), BTreeMap::<String, usize>::new());
    let many = seeds.clone().count() as u64 >= ENOUGH;
    for seed in seeds {
        let begun = Instant::now();
        let hits = run_all(&cells, seed);
        println!("seed {seed}: {} cells in {:.1} s", cells.len(), begun.elapsed().as_secs_f64());
        for row in rows.iter().filter(|_| std::env::var_os(CELL).is_none()) {
            let of_row = |cell: &&Cell<'_>| cell.row.name == row.name;
            let hit = cells.iter().filter(of_row).any(|cell| hits[&cell.name()] > 0);
            assert!(hit, "seed {seed}: {} came never", row.name);
        }
        for (cell, hits) in hits {
            *met.entry(cell).or_default() += hits;
        }
    }
    let missed: Vec<_> = met.iter().filter(|(_, hits)| many && **hits == 0).map(|(cell, _)| cell).collect();
    assert!(missed.is_empty(), "no seed made anything of {missed:?}");
}

#[test]
fn every_line_of_the_page_starts_an_origin() {
    let rows = rows();
    assert_eq!(page::start_all(&rows), rows.len());
}

#[test]
fn the_page_is_written_from_the_table() {
    page::check(&rows());
}

/// Of the environment: one seed, how many from which on, and which cells.
const SEED: &str = "FLATOUT_SEED";
const MANY: &str = "FLATOUT_SEEDS";
const FIRST: &str = "FLATOUT_FIRST_SEED";
const CELL: &str = "FLATOUT_CELL";

/// Those that the environment names, else so many.
pub fn seeds(default: u64) -> RangeInclusive<u64> {
    let number = |name: &str| -> Option<u64> {
        Some(std::env::var(name).ok()?.parse().unwrap_or_else(|_| panic!("{name} is no number")))
    };
    let first = number(FIRST).unwrap_or(1);
    match (number(SEED), number(MANY)) {
        (Some(seed), _) => seed..=seed,
        (None, many) => first..=first + many.unwrap_or(default) - 1,
    }
}

fn cells<'a>(rows: &'a [Row], authority: &'a Authority) -> Vec<Cell<'a>> {
    let wanted = std::env::var(CELL).unwrap_or_default();
    let mut cells = Vec::new();
    for row in rows {
        for work in row.works.iter().copied() {
            for dialect in DIALECTS {
                cells.extend([None, Some(authority)].map(|tls| Cell { row, work, dialect, tls }));
            }
        }
    }
    cells.retain(|cell| cell.name().contains(&wanted) && !matches!(cell.seen(), Seen::Nothing(_)));
    assert!(!cells.is_empty(), "no cell is called {wanted}");
    cells
}

/// Runs all cells, many at once; how often each met with its day: [`Cell::check`].
fn run_all(cells: &[Cell<'_>], seed: u64) -> BTreeMap<String, usize> {
    let (next, wrong, hits) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(cells.len()) {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match cell.check(seed) {
                        Ok(met) => drop(hits.lock().unwrap().insert(cell.name(), met)),
                        Err(seen) => wrong.lock().unwrap().push(complaint(cell, seed, &seen)),
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} cells:\n{}", wrong.len(), cells.len(), wrong.concat());
    hits.into_inner().unwrap()
}

fn complaint(cell: &Cell<'_>, seed: u64, seen: &str) -> String {
    let name = cell.name();
    format!(
        "seed {seed}, {name}: {seen}\n  again: {SEED}={seed} {CELL}={name} cargo test -p flatout-cli --test it faults::\n\n"
    )
}
