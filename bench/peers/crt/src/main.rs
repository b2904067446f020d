//! The AWS CRT as Mountpoint for S3 uses it (mountpoint-s3-client): one object to nowhere, or many with 128 in flight.
//!
//! The C library fetches parts on event loops of its own and hands them over in order; this program counts and drops
//! them. How many connections there are, it decides by the throughput that it is told to aim at.

#![forbid(unsafe_code)]

mod talk;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use futures::{StreamExt, TryStreamExt, executor, pin_mut, stream};
use mountpoint_s3_client::config::{
    AddressingStyle, Allocator, EndpointConfig, S3ClientConfig, TlsConfig, Uri,
};
use mountpoint_s3_client::types::GetObjectParams;
use mountpoint_s3_client::{ObjectClient, S3CrtClient};
use talk::{Arguments, IN_FLIGHT, Result};

fn main() -> ExitCode {
    talk::finish(run())
}

fn run() -> Result<Option<u64>> {
    let arguments = Arguments::read()?;
    let client = client(&arguments)?;
    let jobs = jobs(&arguments)?;
    if !talk::ready()? {
        return Ok(None);
    }
    let bucket = arguments.get("bucket")?;
    executor::block_on(transfer(&client, bucket, jobs)).map(Some)
}

fn client(arguments: &Arguments) -> Result<S3CrtClient> {
    let endpoint = Uri::new_from_str(&Allocator::default(), arguments.get("endpoint")?)?;
    let endpoint =
        EndpointConfig::new("us-east-1").endpoint(endpoint).addressing_style(AddressingStyle::Path);
    let mut config = S3ClientConfig::new().endpoint_config(endpoint);
    if let Some(file) = arguments.find("ca") {
        config = config.tls_config(TlsConfig::new().with_trust_store_path(file));
    }
    if let Some(gbps) = arguments.number("target-gbps")? {
        config = config.throughput_target_gbps(gbps as f64);
    }
    if let Some(loops) = arguments.number("event-loops")? {
        config = config.event_loop_threads(u16::try_from(loops)?);
    }
    Ok(S3CrtClient::new(config)?)
}

/// One object, and the file that keeps its bytes when the lab looks at them.
struct Job {
    key: String,
    kept: Option<PathBuf>,
}

fn jobs(arguments: &Arguments) -> Result<Vec<Job>> {
    if arguments.get("landing")? != "nowhere" {
        return Err("the library hands over bytes and knows no files: --landing nowhere".into());
    }
    let check = arguments.find("check");
    if arguments.get("work")? == "get" {
        return Ok(vec![Job { key: arguments.get("key")?.to_owned(), kept: check.map(PathBuf::from) }]);
    }
    let kept = |key: &String| check.map(|folder| Path::new(folder).join(key));
    Ok(arguments.keys()?.into_iter().map(|key| Job { kept: kept(&key), key }).collect())
}

async fn transfer(client: &S3CrtClient, bucket: &str, jobs: Vec<Job>) -> Result<u64> {
    stream::iter(jobs)
        .map(|job| get(client, bucket, job))
        .buffer_unordered(IN_FLIGHT)
        .try_fold(0, async |sum, delivered| Ok(sum + delivered))
        .await
}

async fn get(client: &S3CrtClient, bucket: &str, job: Job) -> Result<u64> {
    let kept = job.kept.map(create).transpose()?;
    let object = client.get_object(bucket, &job.key, &GetObjectParams::new()).await?;
    pin_mut!(object);
    let mut delivered = 0;
    while let Some(part) = object.try_next().await? {
        delivered += part.data.len() as u64;
        if let Some(file) = &kept {
            file.write_all_at(&part.data, part.offset)?;
        }
    }
    Ok(delivered)
}

fn create(path: PathBuf) -> Result<File> {
    fs::create_dir_all(path.parent().expect("a file lies in a folder"))?;
    Ok(File::create(path)?)
}
