//! Mountpoint for Amazon S3 as its command line mounts a bucket where nothing is said (mountpoint-s3-fs): 16 FUSE threads, parts of
//! 8 MiB, a target of 10 Gbit/s, memory up to 95 % of the machine's, no cache. The crate of its name is a placeholder.
//!
//! `mountpoint --endpoint URL --bucket NAME --mount-point FOLDER [--event-loops N]`, read-only, until it is unmounted or
//! interrupted.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;

use mountpoint_s3_client::config::{AddressingStyle, S3ClientAuthConfig};
use mountpoint_s3_client::user_agent::UserAgent;
use mountpoint_s3_fs::data_cache::DataCacheConfig;
use mountpoint_s3_fs::fuse::config::{FuseOptions, FuseSessionConfig, MountPoint};
use mountpoint_s3_fs::memory::{CandidateSize, PagedPool, effective_total_memory};
use mountpoint_s3_fs::s3::config::{
    ClientConfig, MemoryLimitSetting, PartConfig, Region, TargetThroughputSetting,
};
use mountpoint_s3_fs::s3::{Bucket, Prefix, S3Path};
use mountpoint_s3_fs::{MountpointConfig, Runtime, S3FilesystemConfig, Superblock, SuperblockConfig};

/// Of its command line.
const FUSE_THREADS: usize = 16;
const PART_BYTES: usize = 8 << 20;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mountpoint: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments = arguments()?;
    let get = |flag: &str| arguments.get(flag).cloned().ok_or(format!("--{flag} is missing"));
    let memory = MemoryLimitSetting::Default((effective_total_memory() as f64 * 0.95) as usize);
    let client_config = ClientConfig {
        region: Region::new_user_specified("us-east-1".into()),
        endpoint_url: Some(get("endpoint")?),
        addressing_style: AddressingStyle::Path,
        dual_stack: false,
        transfer_acceleration: false,
        auth_config: S3ClientAuthConfig::Default,
        requester_pays: false,
        expected_bucket_owner: None,
        throughput_target: TargetThroughputSetting::Default,
        bind: None,
        part_config: PartConfig::with_part_size(PART_BYTES).validate(memory)?,
        user_agent: UserAgent::new(None),
        tls_config: None,
    };
    let sizes = [client_config.part_config.read_size_bytes, client_config.part_config.write_size_bytes];
    let pool = PagedPool::config()
        .with_candidate_sizes(sizes.map(CandidateSize::new))
        .with_memory_limit(memory.bytes())
        .build();
    let path = S3Path::new(Bucket::new(get("bucket")?)?, Prefix::empty());
    let client = client_config.create_client(pool.clone(), Some(&path))?;
    let runtime = Runtime::new(client.event_loop_group());

    let filesystem = S3FilesystemConfig { read_only: true, ..Default::default() };
    let superblock = SuperblockConfig {
        cache_config: filesystem.cache_config.clone(),
        s3_personality: filesystem.s3_personality,
    };
    let options = FuseOptions {
        read_only: true,
        allow_other: false,
        allow_root: false,
        auto_unmount: false,
        clone_fd: false,
    };
    let session = FuseSessionConfig::new(MountPoint::new(get("mount-point")?)?, options, FUSE_THREADS)?;
    let metablock = Superblock::new(client.clone(), path, superblock);
    let mounted = MountpointConfig::new(session, filesystem, DataCacheConfig::default())?
        .create_fuse_session(metablock, client, runtime, pool)?;
    mounted.join()?;
    Ok(())
}

fn arguments() -> Result<HashMap<String, String>> {
    let mut words = std::env::args().skip(1);
    let mut values = HashMap::new();
    while let Some(word) = words.next() {
        let flag = word.strip_prefix("--").ok_or(format!("{word}: a flag was expected, such as --bucket"))?;
        let value = words.next().ok_or(format!("--{flag}: a value was expected after it"))?;
        values.insert(flag.to_owned(), value);
    }
    Ok(values)
}
