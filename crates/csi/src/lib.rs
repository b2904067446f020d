//! Buckets as Kubernetes volumes, by the Container Storage Interface (CSI 1.13): the node's plugin, which
//! mounts; the engine, which serves; the controller, which makes prefixes and deletes them.
//! docs/life-of-a-volume.md walks the road.
//!
//! The plugin is privileged and small: it answers kubelet, mounts, binds, and keeps every connection to the
//! kernel. The engine has no privileges and does the work. Each gives the other what it needs to go on.

#![forbid(unsafe_code)]

mod attributes;
mod controller;
mod engine;
mod identity;
mod link;
mod log;
mod node;
mod plan;
pub mod proto;
mod server;
mod volume;
mod volume_id;

pub use attributes::Cluster;
pub use attributes::table;
pub use controller::{Controller, ControllerOptions};
pub use engine::{Engine, EngineOptions, keep};
pub use link::{Failure, NodeFolder};
pub use log::Log;
pub use node::{Kubernetes, NodeOptions, Plugin};
pub use server::{Socket, serve_controller, serve_node};

/// The name by which Kubernetes knows the driver, where no other is chosen.
pub const DRIVER: &str = "csi.flatout.dev";
