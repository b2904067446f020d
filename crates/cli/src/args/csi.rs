//! The command line of `flatout csi`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueHint};
use flatout_settings::parse_metrics_address;

use super::{duration, size};
use crate::help;

#[derive(Debug, Subcommand)]
pub enum Csi {
    /// Answer kubelet on a node: mount volumes and show them to pods; needs the right to mount
    #[command(after_help = help::CSI_NODE)]
    Node(CsiNode),
    /// Serve the volumes of a node, which its plugin hands over; needs no right but the plugin's socket
    #[command(after_help = help::CSI_ENGINE)]
    Engine(CsiEngine),
    /// Make folders of buckets for new volumes, and delete those of volumes that go
    #[command(after_help = help::CSI_CONTROLLER)]
    Controller(CsiController),
}

/// What both plugins are told.
#[derive(Debug, clap::Args)]
pub struct CsiPlugin {
    /// Where Kubernetes calls: unix:///csi/csi.sock
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub endpoint: String,
    /// The name by which storage classes and volumes know the driver
    #[arg(long, value_name = "NAME", default_value = flatout_csi::DRIVER)]
    pub driver_name: String,
    /// The number of the account at Alibaba Cloud whose roles volumes name without an ARN
    #[arg(long, value_name = "NUMBER")]
    pub alibaba_account: Option<String>,
    /// Alibaba Cloud's id of the cluster, which its provider of tokens is named by
    #[arg(long, value_name = "ID")]
    pub alibaba_cluster: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct CsiNode {
    #[command(flatten)]
    pub plugin: CsiPlugin,
    /// The node's name in Kubernetes
    #[arg(long, value_name = "NAME")]
    pub node_name: String,
    /// A folder of the node that its plugin and its engines share; mounts below it must reach kubelet
    #[arg(long, value_name = "DIR", default_value = "/var/lib/flatout-csi", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// The number of the user whose processes are engines
    #[arg(long, value_name = "UID", default_value_t = 65532)]
    pub engine_user: u32,
    /// What all volumes of the node may take of the engine's memory
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    pub memory: u64,
    /// The memory of a volume that sets no `memory`
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    pub volume_memory: u64,
    /// How many volumes Kubernetes may place on the node [default: as many as fit into --memory]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_volumes: Option<u64>,
    /// Let inline volumes use the driver's own keys and roles: then whoever may create a pod may use them
    #[arg(long)]
    pub inline_driver_keys: bool,
    /// Read no role from the annotations of pods' service accounts
    #[arg(long)]
    pub ignore_service_accounts: bool,
    /// Show the files of indexes by FUSE, also where EROFS could
    #[arg(long)]
    pub no_images: bool,
    /// The DaemonSet that says how engines are run, for volumes with `isolation: pod`, which get a pod each
    /// [default: such volumes are refused]
    #[arg(long, value_name = "DAEMONSET")]
    pub engine_pods: Option<String>,
    /// Where Kubernetes keeps what a pod calls its API with: for roles that service accounts name, and for
    /// --engine-pods
    #[arg(long, value_name = "DIR", default_value = ACCOUNT, value_hint = ValueHint::DirPath)]
    pub service_account: PathBuf,
}

const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

#[derive(Debug, clap::Args)]
pub struct CsiEngine {
    /// The folder that it shares with the node's plugin
    #[arg(long, value_name = "DIR", default_value = "/var/lib/flatout-csi", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Answer with metrics of all volumes at http://ADDR:PORT/metrics, at /healthz, and at /readyz once the
    /// plugin has taken it
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = parse_metrics_address)]
    pub metrics: Option<SocketAddr>,
    /// How long files that are being written are waited for when it is to end
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub drain: Duration,
    /// The process that serves, started and started again by the one of this number
    #[arg(long = "__serves", value_name = "PID", hide = true)]
    pub serves: Option<i32>,
}

#[derive(Debug, clap::Args)]
pub struct CsiController {
    #[command(flatten)]
    pub plugin: CsiPlugin,
}
