//! How hints name settings here: as Python's keywords, or as the command's options where Python has none.

use rallypoint::hint::Setting;

/// `timeout=`, `meet=DIR`, `jobs={"worker": 1}`, `` `rallypoint run --until all` ``
pub(crate) fn keyword(setting: Setting, value: Option<&str>) -> String {
    let keyword = match setting {
        Setting::GpusPerNode => "gpus_per_node",
        Setting::GpusPerTask => "gpus_per_task",
        Setting::HostMap => "host_map",
        Setting::HostSuffix => "host_suffix",
        Setting::Interface => "interface",
        Setting::Job => "job",
        Setting::Meet => "meet",
        Setting::MeetTimeout => "timeout",
        Setting::Network => "network",
        Setting::On => "on",
        Setting::Place => "place",
        Setting::PortBase => "port_base",
        Setting::PortRange => "port_range",
        Setting::PsGpus => "ps_gpus",
        Setting::Rank => "rank",
        Setting::Roles => "jobs",
        Setting::Chief => return r#"jobs={"chief": 1}"#.to_owned(),
        Setting::Ps | Setting::Workers if value != Some("rest") => return count(setting, value),
        other => return format!("`rallypoint {} {}`", other.command(), other.typed(value)),
    };
    format!("{keyword}={}", value.map(literal).unwrap_or_default())
}

/// The same for `hold_port`, whose keywords have names of their own.
pub(crate) fn keyword_of_hold_port(setting: Setting, value: Option<&str>) -> String {
    match setting {
        Setting::PortBase => "port=".to_owned(),
        Setting::PortRange => "range=".to_owned(),
        other => keyword(other, value),
    }
}

/// `jobs={"ps": 1}`
fn count(setting: Setting, value: Option<&str>) -> String {
    let role = if setting == Setting::Ps { "ps" } else { "worker" };
    format!("jobs={{\"{role}\": {}}}", value.unwrap_or("N"))
}

/// `"local"`; a number, and what stands for a value (`DIR`), is written without quotes.
fn literal(value: &str) -> String {
    match value.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase()) {
        true => value.to_owned(),
        false => format!("{value:?}"),
    }
}
