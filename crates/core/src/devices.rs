//! GPUs as the scheduler names them: indices, `GPU-` or `MIG-` ids, in a mask variable.

use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::variables as var;
use serde::{Serialize, Serializer};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// One GPU, by the name its mask variable has for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device(Arc<str>);

/// The devices of one member or one host; cheap to copy.
pub type DeviceList = Arc<[Device]>;

/// The variables that mask GPUs, the one that decides first.
pub const MASKS: [&str; 5] = [
    var::CUDA_VISIBLE_DEVICES,
    var::ROCR_VISIBLE_DEVICES,
    var::HIP_VISIBLE_DEVICES,
    var::ZE_AFFINITY_MASK,
    var::GPU_DEVICE_ORDINAL,
];

/// A mask that is not one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MaskError {
    /// A GPU is named twice.
    #[error("{variable}={value}: {device:?} is named twice")]
    Twice {
        /// The mask variable.
        variable: &'static str,
        /// Its whole value.
        value: String,
        /// The GPU that stands in it twice.
        device: String,
    },
    /// An entry is neither an index nor an id.
    #[error("{variable}={value}: {found:?} is not a GPU")]
    NotADevice {
        /// The mask variable.
        variable: &'static str,
        /// Its whole value.
        value: String,
        /// The entry that names no GPU.
        found: String,
    },
}

impl Hinted for MaskError {
    fn hint(&self) -> Option<Hint> {
        match self {
            MaskError::Twice { .. } => Some(hint!("each GPU may stand in the mask once")),
            MaskError::NotADevice { .. } => {
                Some(hint!("write indices (0,1) or ids (GPU-..., MIG-...), separated by commas"))
            }
        }
    }
}

impl Device {
    /// The GPU of this name.
    pub(crate) fn new(name: &str) -> Device {
        Device(name.into())
    }

    /// `0` to `count - 1`.
    pub fn first(count: u32) -> DeviceList {
        (0..count).map(|index| Device::new(&index.to_string())).collect()
    }

    /// Its name: `0`, `GPU-8f6a...`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// `0,1` as a mask variable wants it.
pub fn join(devices: &[Device]) -> String {
    devices.iter().map(Device::as_str).collect::<Vec<_>>().join(",")
}

/// Reads a mask. Empty, `-1`, `none`, `NoDevFiles` and HTCondor's `10000` mean no GPU, and as for
/// CUDA itself nothing behind a `-1` counts.
pub(crate) fn parse_mask(variable: &'static str, value: &str) -> Result<DeviceList, MaskError> {
    let mut devices: Vec<Device> = Vec::new();
    if value.trim().is_empty() {
        return Ok(devices.into());
    }
    for name in value.split(',').map(str::trim) {
        if name == "-1"
            || name == "10000"
            || name.eq_ignore_ascii_case("none")
            || name.eq_ignore_ascii_case("NoDevFiles")
        {
            break;
        }
        if !is_device_name(name) {
            return Err(MaskError::NotADevice { variable, value: value.to_owned(), found: name.to_owned() });
        }
        let device = Device::new(name);
        if devices.contains(&device) {
            return Err(MaskError::Twice { variable, value: value.to_owned(), device: name.to_owned() });
        }
        devices.push(device);
    }
    Ok(devices.into())
}

/// `3`, `GPU-a0223334`, `MIG-GPU-a02/1/0`, Level Zero's `0.1`.
pub(crate) fn is_device_name(name: &str) -> bool {
    let starts_well = name.starts_with(|c: char| c.is_ascii_digit())
        || name.starts_with("GPU-")
        || name.starts_with("MIG-");
    starts_well && name.chars().all(|c| c.is_ascii_alphanumeric() || "-./_".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(value: &str) -> Result<Vec<String>, MaskError> {
        parse_mask("CUDA_VISIBLE_DEVICES", value)
            .map(|devices| devices.iter().map(Device::to_string).collect())
    }

    #[test]
    fn masks_that_mean_no_gpu() {
        for value in ["", " ", "-1", "10000", "none", "None", "NoDevFiles"] {
            assert_eq!(names(value).unwrap(), Vec::<String>::new(), "{value:?}");
        }
    }

    #[test]
    fn masks_keep_names_and_order() {
        assert_eq!(names("2,3").unwrap(), ["2", "3"]);
        assert_eq!(names("3, 1").unwrap(), ["3", "1"]);
        assert_eq!(names("GPU-a0223334,MIG-7c1c").unwrap(), ["GPU-a0223334", "MIG-7c1c"]);
        assert_eq!(names("0,-1,2").unwrap(), ["0"], "CUDA stops at the first invalid index");
        assert_eq!(names("0.0,0.1").unwrap(), ["0.0", "0.1"]);
    }

    #[test]
    fn masks_that_are_wrong_say_where() {
        assert!(names("0,0").unwrap_err().to_string().contains("twice"));
        let text = names("0,x").unwrap_err().to_string();
        assert!(text.starts_with("CUDA_VISIBLE_DEVICES=0,x: \"x\" is not a GPU"), "{text}");
        assert!(names("0,,1").is_err());
    }
}
