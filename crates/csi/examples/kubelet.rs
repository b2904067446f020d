//! A call of kubelet's, by hand: publishes a volume on a node whose plugin answers at a socket, or takes it
//! back, and says how many milliseconds that took.
//!
//! ```sh
//! cargo run -p flatout-csi --example kubelet -- SOCKET publish VOLUME TARGET source=s3://b secret.key_id=AK
//! cargo run -p flatout-csi --example kubelet -- SOCKET unpublish VOLUME TARGET
//! ```

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use flatout_csi::proto::node_client::NodeClient;
use flatout_csi::proto::volume_capability::access_mode::Mode;
use flatout_csi::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use flatout_csi::proto::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability};
use tonic::transport::Endpoint;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, call, volume, target, more @ ..] = &arguments[..] else {
        eprintln!("kubelet SOCKET publish|unpublish VOLUME TARGET [KEY=VALUE] [secret.KEY=VALUE]");
        return ExitCode::from(4);
    };
    match answer(socket, call, volume, target, more).await {
        Ok(milliseconds) => {
            println!("{milliseconds:.2}");
            ExitCode::SUCCESS
        }
        Err(refused) => {
            eprintln!("{refused}");
            ExitCode::FAILURE
        }
    }
}

async fn answer(
    socket: &str,
    call: &str,
    volume: &str,
    target: &str,
    more: &[String],
) -> Result<f64, Box<dyn std::error::Error>> {
    let channel = Endpoint::from_shared(format!("unix://{socket}"))?.connect().await?;
    let mut client = NodeClient::new(channel);
    let (volume_id, target_path) = (volume.to_owned(), target.to_owned());
    let began = Instant::now();
    if call == "unpublish" {
        client.node_unpublish_volume(NodeUnpublishVolumeRequest { volume_id, target_path }).await?;
        return Ok(began.elapsed().as_secs_f64() * 1e3);
    }
    let (mut secrets, mut volume_context) = (HashMap::new(), HashMap::new());
    for pair in more {
        let (key, value) = pair.split_once('=').ok_or("write KEY=VALUE")?;
        match key.strip_prefix("secret.") {
            Some(key) => secrets.insert(key.to_owned(), value.to_owned()),
            None => volume_context.insert(key.to_owned(), value.to_owned()),
        };
    }
    // As kubelet, which makes the folder above the target.
    std::fs::create_dir_all(Path::new(target).parent().ok_or("the target is no path")?)?;
    let capability = VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::MultiNodeMultiWriter as i32 }),
        access_type: Some(AccessType::Mount(MountVolume::default())),
    };
    client
        .node_publish_volume(NodePublishVolumeRequest {
            volume_id,
            target_path,
            volume_capability: Some(capability),
            secrets,
            volume_context,
            ..NodePublishVolumeRequest::default()
        })
        .await?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}
