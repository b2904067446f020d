//! The Rust program of seed 002 in 40 lines: one object, many ranges at once, bytes dropped, average and peak
//! rate, and a record of each part.
//! `cargo run --release --example get -- s3://bucket/key http://127.0.0.1:9000`

use std::sync::Arc;
use std::time::{Duration, Instant};

use flatout_engine::credentials::Fixed;
use flatout_engine::{Client, Config, Get, Landing};
use flatout_wire::location::Location;
use flatout_wire::sign::Credentials;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let location = Location::parse(&arguments.next().ok_or("usage: get URL [ENDPOINT]")?)?;
    let mut config = Config::default();
    config.settings.endpoint_url = arguments.next();
    config.settings.parallel = Some(16);
    if let (Ok(access_key), Ok(secret_key)) =
        (std::env::var("AWS_ACCESS_KEY_ID"), std::env::var("AWS_SECRET_ACCESS_KEY"))
    {
        config.aws_credentials = Arc::new(Fixed(Credentials { access_key, secret_key, session_token: None }));
    }

    let client = Client::new(config)?;
    let transfer = client.get(Get::new(location, Landing::Nowhere).with_part_records())?;
    let (mut peak, mut last_bytes, mut last) = (0.0_f64, 0, Instant::now());
    while !transfer.wait_timeout(Duration::from_millis(250)) {
        let landed_bytes = transfer.progress().landed_bytes;
        peak = peak.max((landed_bytes - last_bytes) as f64 * 8e-9 / last.elapsed().as_secs_f64());
        (last_bytes, last) = (landed_bytes, Instant::now());
    }
    let report = transfer.wait()?;
    for part in &report.parts {
        println!(
            "{} {} {:.4} {:.4} {:.4}",
            part.index, part.address, part.start_s, part.first_byte_s, part.end_s
        );
    }
    let average = report.bytes as f64 * 8e-9 / report.seconds;
    println!("{} bytes in {:.2} s: {average:.1} Gbit/s, peak {peak:.1}", report.bytes, report.seconds);
    println!("verified: {}", report.verified);
    Ok(())
}
