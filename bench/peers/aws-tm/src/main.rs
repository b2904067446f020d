//! The S3 transfer manager of the AWS SDK for Rust: one object to nowhere (its body, in order) or to a file
//! (its own `write_to_path`); many objects, 128 in flight, each a download of its own; one file as an object
//! (`InputStream::from_path`).
//!
//! The transfer manager runs threads and connections of its own; here it is only driven, by a runtime of one thread, as
//! its example `cp` does. The environment gives it keys, region, and a TLS origin's authority (SSL_CERT_FILE).

#![forbid(unsafe_code)]

mod talk;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use aws_sdk_s3_transfer_manager::io::InputStream;
use aws_sdk_s3_transfer_manager::types::{ConcurrencyMode, PartSize};
use aws_sdk_s3_transfer_manager::{Client, Config};
use talk::{Arguments, IN_FLIGHT, Result};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// What `PartSize::Auto` is for downloads, and the least that the library allows: less is rounded up without a word.
/// It is given rather than left to Auto because Auto takes an ETag `x-N` for that of an upload in N parts and then asks
/// for `partNumber=1` to learn their size. The ETags of nginx have that form (time-size), and its answer is the whole
/// object: the download would be one GET.
const PART_BYTES: u64 = 5 << 20;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    talk::finish(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run())))
}

async fn run() -> Result<Option<u64>> {
    let arguments = Arguments::read()?;
    let client = client(&arguments).await?;
    if arguments.get("work")? == "put" {
        return put(&client, &arguments).await;
    }
    let jobs = jobs(&arguments)?;
    if !talk::ready()? {
        return Ok(None);
    }
    let bucket: Arc<str> = arguments.get("bucket")?.into();
    transfer(client, bucket, jobs).await.map(Some)
}

async fn put(client: &Client, arguments: &Arguments) -> Result<Option<u64>> {
    let (bucket, key) = (arguments.get("bucket")?, arguments.get("key")?);
    let path = Path::new(arguments.get("source")?);
    let bytes = fs::metadata(path)?.len();
    if !talk::ready()? {
        return Ok(None);
    }
    let body = InputStream::from_path(path)?;
    client.upload().bucket(bucket).key(key).body(body).initiate()?.join().await?;
    Ok(Some(bytes))
}

async fn client(arguments: &Arguments) -> Result<Client> {
    let shared = aws_config::load_defaults(aws_config::BehaviorVersion::latest()).await;
    let s3 = aws_sdk_s3::config::Builder::from(&shared)
        .endpoint_url(arguments.get("endpoint")?)
        .force_path_style(true);
    let concurrency = match arguments.number("parallel")? {
        Some(requests) => ConcurrencyMode::Explicit(requests as usize),
        None => ConcurrencyMode::Auto,
    };
    Ok(Client::new(
        Config::builder()
            .s3_config(s3)
            .concurrency(concurrency)
            .part_size(part_size(arguments)?)
            .build(),
    ))
}

fn part_size(arguments: &Arguments) -> Result<PartSize> {
    let given = arguments.number("part-bytes")?;
    if given.is_none() && arguments.get("work")? == "put" {
        return Ok(PartSize::Auto);
    }
    let part_bytes = given.unwrap_or(PART_BYTES);
    if part_bytes < PART_BYTES {
        return Err(format!("parts of {part_bytes} bytes: the library makes them {PART_BYTES}").into());
    }
    Ok(PartSize::Target(part_bytes))
}

/// One object and where it goes.
struct Job {
    key: String,
    landing: Landing,
}

enum Landing {
    Nowhere,
    /// What would be dropped, kept for the lab to look at.
    Kept(PathBuf),
    File(PathBuf),
}

/// All that is to be got; the folders of files are made here, outside the clock.
fn jobs(arguments: &Arguments) -> Result<Vec<Job>> {
    let keys = match arguments.get("work")? {
        "get" => return Ok(vec![Job { key: arguments.get("key")?.to_owned(), landing: one(arguments)? }]),
        "many" => arguments.keys()?,
        other => return Err(format!("--work {other}: get, many or put").into()),
    };
    let prefix = arguments.find("prefix").unwrap_or_default();
    let landing = |key: &String| match (arguments.get("landing")?, arguments.find("check")) {
        (_, Some(folder)) => file_in(folder, key),
        ("nowhere", None) => Ok(Landing::Nowhere),
        ("files", None) => file_in(arguments.get("target")?, key.strip_prefix(prefix).unwrap_or(key)),
        (other, None) => Err(format!("--landing {other} of many: nowhere or files").into()),
    };
    keys.into_iter().map(|key| Ok(Job { landing: landing(&key)?, key })).collect()
}

fn one(arguments: &Arguments) -> Result<Landing> {
    match (arguments.get("landing")?, arguments.find("check")) {
        ("nowhere", None) => Ok(Landing::Nowhere),
        ("nowhere", Some(file)) => Ok(Landing::Kept(file.into())),
        ("file", check) => Ok(Landing::File(check.map_or_else(|| arguments.get("target"), Ok)?.into())),
        (other, _) => Err(format!("--landing {other}: the library has no way for it").into()),
    }
}

fn file_in(folder: &str, name: &str) -> Result<Landing> {
    let path = Path::new(folder).join(name);
    fs::create_dir_all(path.parent().expect("it lies in a folder"))?;
    Ok(Landing::File(path))
}

async fn transfer(client: Client, bucket: Arc<str>, jobs: Vec<Job>) -> Result<u64> {
    let free = Arc::new(Semaphore::new(IN_FLIGHT));
    let mut gets = JoinSet::new();
    for job in jobs {
        let permit = free.clone().acquire_owned().await?;
        let (client, bucket) = (client.clone(), bucket.clone());
        gets.spawn(async move {
            let delivered = get(&client, &bucket, job).await;
            drop(permit);
            delivered
        });
    }
    gets.join_all().await.into_iter().sum()
}

async fn get(client: &Client, bucket: &str, job: Job) -> Result<u64> {
    let download = client.download().bucket(bucket).key(job.key);
    let mut kept = match job.landing {
        Landing::Nowhere => None,
        Landing::Kept(path) => Some(File::create(path)?),
        Landing::File(path) => {
            download.write_to_path(&path).await?.join().await?;
            return Ok(fs::metadata(path)?.len());
        }
    };
    let mut handle = download.initiate()?;
    let mut delivered = 0;
    while let Some(Ok(chunk)) = handle.body_mut().next().await {
        delivered += chunk.data.len() as u64;
        if let Some(file) = &mut kept {
            chunk.data.into_segments().iter().try_for_each(|segment| file.write_all(segment))?;
        }
    }
    // Says what went wrong when the body ended early.
    handle.join().await?;
    Ok(delivered)
}
