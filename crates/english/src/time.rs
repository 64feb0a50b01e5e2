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

/// `30 s`, `5 min`; `1.5 s` and `0.2 s` where a moment counts
pub(crate) fn since(time: Duration) -> String {
    match time.as_secs() {
        0..10 if time.subsec_millis() > 0 => format!("{} s", time.as_millis() as f64 / 1000.0),
        _ => ago(time),
    }
}

/// `7 s of 60 s`
pub(crate) fn so_far(waited: &Waited) -> String {
    format!("{} s of {} s", waited.waited.as_secs(), waited.limit.as_secs())
}
