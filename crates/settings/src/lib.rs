//! Every knob of Flatout once: name, unit, default, bounds and a line of prose; data only.
//!
//! Flags, the environment (`FLATOUT_*`), config keys and docs/settings.md are derived from [`KNOBS`]. This
//! crate reads no environment and no file: `ambient` and the faces do, and hand over text.

#![forbid(unsafe_code)]

mod address;
mod duration;
mod error;
mod kind;
mod knob;
mod markdown;
mod nearest;
mod python;
mod settings;
mod size;

pub use address::{parse_address, parse_metrics_address};
pub use duration::{format_duration, parse_duration};
pub use error::{Clash, SettingError};
pub use kind::Kind;
pub use knob::{Group, KNOBS, Knob, MountSettings, Settings, knob};
pub use markdown::markdown;
pub use nearest::nearest;
pub use python::python;
pub use size::{format_size, parse_size};
