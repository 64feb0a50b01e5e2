//! What Slurm's own commands are asked: how much time is left, and to run a job again.

use crate::environ::Environ;
use crate::process::{find_on_path, run_with_limit};
use crate::variables as var;
use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// A controller that is busy must not hold a job up.
const LIMIT: Duration = Duration::from_secs(5);

/// When the job's time limit ends it, for versions that do not set `SLURM_JOB_END_TIME` (22.05). Asked once a
/// run, by its leader.
pub(super) fn ask_deadline(environ: &Environ) -> Option<SystemTime> {
    let job = environ.get_nonempty(var::SLURM_JOB_ID)?;
    let squeue = find_on_path("squeue", environ.get(var::PATH))?;
    let text = run_with_limit(Command::new(squeue).args(["-h", "-o", "%L", "-j", job]), LIMIT).ok()?;
    SystemTime::now().checked_add(parse_time_left(text.trim())?)
}

/// `4:59`, `1:00:00`, `2-03:04:05`; `UNLIMITED`, `INVALID` and `NOT_SET` are none.
fn parse_time_left(text: &str) -> Option<Duration> {
    let (days, time) = match text.split_once('-') {
        Some((days, time)) => (days.parse::<u64>().ok()?, time),
        None => (0, text),
    };
    let parts: Vec<u64> = time.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    if !(2..=3).contains(&parts.len()) {
        return None;
    }
    let seconds = parts.iter().try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(*part))?;
    Some(Duration::from_secs(days.checked_mul(86400)?.checked_add(seconds)?))
}

/// What puts the job back into the queue: it ends here and starts again as the next attempt. `None` if
/// `scontrol` is not on PATH.
pub(super) fn requeue_command(job: &str, path: Option<&str>) -> Option<Vec<OsString>> {
    let scontrol = find_on_path("scontrol", path)?;
    Some(vec![scontrol.into(), "requeue".into(), job.into()])
}

#[cfg(test)]
mod tests {
    use super::parse_time_left;

    #[test]
    fn time_left_as_squeue_writes_it() {
        let seconds = |text| parse_time_left(text).map(|left| left.as_secs());
        assert_eq!(seconds("4:59"), Some(299));
        assert_eq!(seconds("1:00:00"), Some(3600));
        assert_eq!(seconds("2-03:04:05"), Some(2 * 86400 + 3 * 3600 + 4 * 60 + 5));
        assert_eq!(seconds("0:00"), Some(0));
        for none in
            ["UNLIMITED", "INVALID", "NOT_SET", "", "5", "1:2:3:4", "-1:00", "9999999999999999999-1:00"]
        {
            assert_eq!(seconds(none), None, "{none}");
        }
    }
}
