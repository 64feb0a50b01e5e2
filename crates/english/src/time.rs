//! Times as people say them.

use rallypoint::event::Waited;
use std::time::Duration;

/// `2:05 h`, `17 min`, `40 s`
pub(crate) fn left(time: Duration) -> String {
    match time.as_secs() {
        0..7200 => ago(time),
        seconds => format!("{}:{:02} h", seconds / 3600, seconds % 3600 / 60),
    }
}

/// `60 s`, `5 min`
pub(crate) fn ago(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
}

/// `7 s of 60 s`
pub(crate) fn so_far(waited: &Waited) -> String {
    format!("{} s of {} s", waited.waited.as_secs(), waited.limit.as_secs())
}
