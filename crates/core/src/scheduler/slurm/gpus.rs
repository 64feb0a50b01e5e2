//! GPUs as Slurm bound them: the whole host's, or already this task's alone.

use crate::devices::{DeviceList, MaskError};
use crate::environ::Environ;
use crate::machine::GpuProbe;
use crate::variables as var;

/// What this process was given.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OwnGpus {
    /// All tasks of this host see the same mask and have to split it.
    Shared(DeviceList),
    /// The mask is smaller than what the host has for the step: it is this task's alone.
    Bound(DeviceList),
    /// There are GPUs, but nothing names them (22.05 with `--gpu-bind=none`).
    Unnamed(u32),
}

pub(super) fn own_gpus(environ: &Environ) -> Result<OwnGpus, MaskError> {
    let on_node: Option<u32> =
        environ.get_nonempty(var::SLURM_GPUS_ON_NODE).and_then(|text| text.parse().ok());
    Ok(match (environ.gpu_mask()?, on_node) {
        (Some(mask), Some(on_node)) if mask.len() < on_node as usize => OwnGpus::Bound(mask),
        (Some(mask), _) => OwnGpus::Shared(mask),
        (None, Some(count)) if count > 0 => match &environ.gpus {
            GpuProbe::Listed(found) if found.len() == count as usize => OwnGpus::Shared(found.clone().into()),
            _ => OwnGpus::Unnamed(count),
        },
        // The job has GPUs and this step none (`srun --gres=none`), whatever the machine shows.
        (None, _) if environ.get(var::SLURM_JOB_GPUS).is_some() => OwnGpus::Shared(Vec::new().into()),
        (None, _) => match &environ.gpus {
            // A site whose Slurm does not manage GPUs.
            GpuProbe::Listed(found) => OwnGpus::Shared(found.clone().into()),
            _ => OwnGpus::Shared(Vec::new().into()),
        },
    })
}

/// True if another host of an ordinary job surely looks like this one: the same number was asked
/// for on each host, and this host was given its first ones.
pub(super) fn others_look_alike(environ: &Environ, own: &OwnGpus) -> bool {
    let OwnGpus::Shared(list) = own else { return false };
    let first = list.iter().enumerate().all(|(index, device)| device.as_str().parse() == Ok(index));
    first && environ.get(var::SLURM_GPUS).is_none() && environ.get(var::SLURM_HET_SIZE).is_none()
}
