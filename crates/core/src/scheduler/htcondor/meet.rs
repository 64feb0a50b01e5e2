//! How procs and nodes find each other: in the submit directory if the job runs in it, otherwise by chirp.

use super::chirp::Chirp;
use super::job_ad::JobAd;
use super::submit_directory;
use super::submit_directory::SubmitDirectory;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::rendezvous::directory::Directory;
use crate::rendezvous::{RendezvousError, WayToMeet};
use crate::scheduler::{MeetRequest, PlaceError};
use crate::variables as var;
use std::path::Path;
use thiserror::Error;

#[derive(Debug, Error)]
#[error("no chirp: {reason}")]
struct NoChirp {
    reason: String,
}

impl Hinted for NoChirp {
    fn hint(&self) -> Option<Hint> {
        Some(hint!(
            "write `+WantIOProxy = true` into the submit description, or give all members the same ",
            Setting::Meet.with("DIR"),
            ", a directory that they share"
        ))
    }
}

/// The submit directory if the job runs in it, otherwise chirp.
pub(super) fn in_a_pool(request: &MeetRequest<'_>) -> Result<WayToMeet, PlaceError> {
    match submit_directory(request.environ) {
        Some((folder, true)) => Ok(WayToMeet::contested(request.directory(Path::new(&folder))?)),
        _ => by_chirp(request),
    }
}

/// The parallel universe's nodes share an ad; procs of the vanilla universe only the submit directory.
pub(super) fn by_chirp(request: &MeetRequest<'_>) -> Result<WayToMeet, PlaceError> {
    let missing = |reason: String| PlaceError::Scheduler(NoChirp { reason }.into());
    let file = request
        .environ
        .get_nonempty(var::CONDOR_CHIRP_CONFIG)
        .ok_or_else(|| missing(format!("{} is not set", var::CONDOR_CHIRP_CONFIG)))?;
    let text = std::fs::read_to_string(file).map_err(|error| missing(format!("{file}: {error}")))?;
    let chirp =
        Chirp::parse(&text).ok_or_else(|| missing(format!("{file} does not tell host, port and cookie")))?;
    let (folder, _) =
        submit_directory(request.environ).ok_or_else(|| missing("the job ad has no Iwd".to_owned()))?;
    let (folder, plan) = (Path::new(&folder), request.plan);
    if let (None, Some(node)) = (plan.restarts(), plan.me()) {
        let known = request.all_have_a_key;
        return Ok(WayToMeet::known(JobAd::new(chirp, folder, node, request.job, plan.attempt(), known)?));
    }
    let (submitted, mode) =
        SubmitDirectory::new(chirp, folder).map_err(|error| RendezvousError::Directory {
            path: folder.to_owned(),
            reason: format!("through chirp, {error}"),
            hint: Some(hint!(
                "write `+WantIOProxy = true` into the submit description, or give ",
                Setting::Meet.with("DIR"),
                " where one is shared"
            )),
        })?;
    let directory = Directory::in_folder(Box::new(submitted), mode, request.job, plan.attempt())?;
    Ok(WayToMeet::contested(directory))
}
