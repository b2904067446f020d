//! The bars.
use std::time::Instant;

use super::model::{Control, Shape, run};
use super::{MIB, Pace};

const M: f64 = MIB as f64;

fn base(name: &'static str, per: f64, first: f64, total: f64) -> Shape {
    Shape {
        name,
        per_connection: per * M,
        first_byte: first,
        total: total * M,
        total_later: total * M,
        per_connection_later: per * M,
        round_trip: first / 3.0,
        noise: 0.05,
        unevenness: 0.2,
        penalty: 0.05,
        cores_seed: 16.0,
    }
}

fn shapes() -> Vec<Shape> {
    let far = f64::MAX / 1e10 / M;
    let _ = far;
    let mut all = vec![
        base("4/5 total 200", 4.0, 0.005, 200.0),
        base("4/30 total 1000", 4.0, 0.030, 1000.0),
        base("4/100 open", 4.0, 0.100, 1e6),
        base("4/5 open", 4.0, 0.005, 1e6),
        base("16/5 total 1000", 16.0, 0.005, 1000.0),
        base("16/30 total 2000", 16.0, 0.030, 2000.0),
        base("16/30 total 500", 16.0, 0.030, 500.0),
        base("16/100 total 1000", 16.0, 0.100, 1000.0),
        base("16/30 open 4000", 16.0, 0.030, 4000.0),
        base("64/5 total 500", 64.0, 0.005, 500.0),
        base("64/5 total 2000", 64.0, 0.005, 2000.0),
        base("64/30 total 4000", 64.0, 0.030, 4000.0),
        base("64/100 total 1000", 64.0, 0.100, 1000.0),
        base("64/100 total 12000", 64.0, 0.100, 12000.0),
        Shape { total_later: 500.0 * M, ..base("16/30 1000 halves", 16.0, 0.030, 1000.0) },
        Shape { total_later: 2000.0 * M, ..base("16/30 1000 doubles", 16.0, 0.030, 1000.0) },
        Shape { total_later: 500.0 * M, ..base("64/5 1000 halves", 64.0, 0.005, 1000.0) },
        Shape { total_later: 2000.0 * M, ..base("64/100 1000 doubles", 64.0, 0.100, 1000.0) },
        Shape { noise: 0.1, ..base("16/30 1000 noise .1", 16.0, 0.030, 1000.0) },
        Shape { noise: 0.2, ..base("16/30 1000 noise .2", 16.0, 0.030, 1000.0) },
        Shape { noise: 0.2, ..base("64/5 500 noise .2", 64.0, 0.005, 500.0) },
        Shape { per_connection_later: 8.0 * M, ..base("16/30 500 conn halves", 16.0, 0.030, 500.0) },
    ];
    for (name, per, total) in [("near 4/100 open", 4.0, 1e6), ("near 64/100 12000", 64.0, 12000.0), ("near 16/100 1000", 16.0, 1000.0), ("near 4/30 open", 4.0, 1e6)] {
        let first = if name.contains("/30") { 0.03 } else { 0.1 };
        all.push(Shape { round_trip: 0.001, ..base(name, per, first, total) });
    }
    for core in [32.0] {
        all.push(Shape { cores_seed: core, ..base("64/5 500 seed 32", 64.0, 0.005, 500.0) });
        all.push(Shape { cores_seed: core, ..base("16/30 1000 seed 32", 16.0, 0.030, 1000.0) });
    }
    all
}

fn best_fixed(shape: &Shape, part: f64) -> (u32, f64) {
    let levels = [8, 16, 32, 64, 128, 256, 512];
    let runs = levels.map(|l| (l, run(shape, Control::Fixed(l, part), 20.0, 1).total()));
    let best = runs.iter().map(|(_, r)| *r).fold(0.0, f64::max);
    *runs.iter().find(|(_, r)| *r >= 0.98 * best).unwrap()
}

#[test]
fn table() {
    let seeds: u64 = std::env::var("SEEDS").map_or(8, |s| s.parse().unwrap());
    let only = std::env::var("ONLY").ok();
    println!("{:24} {:>5} | bytes: med worst | conns: med worst | 2..4 s: med worst | t90 med p90", "shape", "best");
    for shape in shapes() {
        if only.as_ref().is_some_and(|o| !shape.name.contains(o.as_str())) { continue; }
        let long = (shape.per_connection * (20.0 * shape.first_byte).clamp(0.25, 1.0) / M).round().clamp(1.0, 64.0) * M;
        let (a, b) = (best_fixed(&shape, 8.0 * M), best_fixed(&shape, long));
        let (part, plevel) = if a.1 > b.1 { (8.0 * M, a.0) } else { (long, b.0) };
        let level = a.0.min(b.0);
        let mut rows = vec![];
        for seed in 0..seeds {
            let fixed = run(&shape, Control::Fixed(plevel, part), 20.0, seed);
            let start = Instant::now();
            let mut pace = Pace::new(shape.cores_seed, start);
            let r = run(&shape, Control::Paced(&mut pace, start), 20.0, seed);
            let plateau = fixed.rate(2.0, 10.0);
            let mut t90 = 20.0;
            let mut t = 0.3;
            while t < 10.0 {
                if r.rate(t - 0.3, t) >= 0.9 * plateau { t90 = t; break; }
                t += 0.025;
            }
            rows.push([r.total() / fixed.total(), r.connections() / level as f64, r.rate(2.0, 4.0) / fixed.rate(2.0, 4.0), t90]);
        }
        let col = |i: usize| { let mut c: Vec<f64> = rows.iter().map(|r| r[i]).collect(); c.sort_by(f64::total_cmp); c };
        let (b, c, e, t) = (col(0), col(1), col(2), col(3));
        let n = b.len();
        let flag = if b[n / 2] < 0.92 || c[n / 2] > 1.3 || e[n / 2] < 0.9 { "  <<<" } else if b[0] < 0.92 || c[n-1] > 1.3 || e[0] < 0.9 { " <" } else {""};
        println!("{:24} {:5}/{:3} | {:.3} {:.3} | {:.2} {:.2} | {:.2} {:.2} | {:.2} {:.2}{}", shape.name, level, plevel, b[n / 2], b[0], c[n / 2], c[n - 1], e[n / 2], e[0], t[n / 2], t[n * 9 / 10], flag);
    }
}
