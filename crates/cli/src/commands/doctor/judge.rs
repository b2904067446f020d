//! What facts mean: pure functions from facts to findings, a table of tests beside each.

mod keys;
mod machine;
mod network_path;
mod origin_probe;
mod speed_test;

pub use keys::{keys, profile, settings};
pub use machine::{machine, place};
pub use network_path::network_path;
pub use origin_probe::origin_probe;
pub use speed_test::speed_test;

/// What one core carries of plain HTTP and of TLS with AES in hardware, in Gbit/s: 0.17 and 0.38 CPU s/GiB
/// (docs/numbers.md), with room for slower cores.
const PLAIN_GBIT_PER_CORE: f64 = 40.0;
const TLS_GBIT_PER_CORE: f64 = 20.0;

/// What one connection to an object store brings (DESIGN §2: 90 MB/s each).
const CONNECTION_BYTES_PER_S: f64 = 90e6;

/// `0.25 ms`, `31 ms`, `1.2 s`
fn time(seconds: f64) -> String {
    match seconds * 1e3 {
        ms if ms < 10.0 => format!("{ms:.2} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1e3),
    }
}

/// `0.8 Gbit/s`, `25 Gbit/s`
fn speed(gbit: f64) -> String {
    match gbit {
        slow if slow < 0.1 => format!("{:.0} Mbit/s", slow * 1e3),
        slow if slow < 10.0 => format!("{slow:.1} Gbit/s"),
        fast => format!("{fast:.0} Gbit/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_two_digits_or_three() {
        for (seconds, text) in [(0.000_25, "0.25 ms"), (0.0314, "31 ms"), (1.24, "1.2 s")] {
            assert_eq!(time(seconds), text);
        }
        for (gbit, text) in [(0.012, "12 Mbit/s"), (0.83, "0.8 Gbit/s"), (24.9, "25 Gbit/s")] {
            assert_eq!(speed(gbit), text);
        }
    }
}
