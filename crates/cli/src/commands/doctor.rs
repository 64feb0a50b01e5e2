//! `rallypoint doctor`

use super::{print, print_json};
use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::printable::printable;
use crate::settings;
use rallypoint::doctor::Report;
use rallypoint::network::Interface;
use std::fmt::Write;

pub(super) fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let report = Report::new(&settings::environ(&args.captured)?);
    if args.json { print_json(&report) } else { print(render(&report).as_bytes()) }
}

/// A paragraph per subject: what was found, then from what.
fn render(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |subject: &str, text: String| {
        let text = printable(&text).replace('\n', "\n            ");
        _ = writeln!(out, "{subject:<12}{text}");
    };
    let scheduler = &report.scheduler;
    line("scheduler", format!("{}, {}", scheduler.name, scheduler.context));
    for variable in &scheduler.because {
        line("", format!("{}={}", variable.name, variable.value));
    }
    if !scheduler.missing.is_empty() {
        line("", format!("not set: {}", scheduler.missing.join(", ")));
    }
    if let Some(problem) = &scheduler.problem {
        line("", format!("problem: {problem}"));
    }
    if let Some(hostname) = &report.hostname {
        line("host", hostname.clone());
    }
    match report.interfaces.as_slice() {
        [] => line("addresses", "none found".to_owned()),
        interfaces => {
            for (i, interface) in interfaces.iter().enumerate() {
                line(if i == 0 { "addresses" } else { "" }, interface_line(interface));
            }
        }
    }
    let gpus = &report.gpus;
    let found = if gpus.devices.is_empty() { "none".to_owned() } else { gpus.devices.join(",") };
    line("GPUs", format!("{found} ({})", gpus.how));
    if let Some(cpus) = &report.cpus {
        let limit = |limit: Option<u32>| limit.map_or("no limit".to_owned(), |cpus| cpus.to_string());
        line(
            "CPUs",
            format!(
                "{} usable ({} online, affinity {}, cgroup quota {})",
                cpus.usable,
                cpus.online,
                limit(cpus.affinity),
                limit(cpus.cgroup_quota)
            ),
        );
    }
    match report.proxies.as_slice() {
        [] => line("proxies", "none".to_owned()),
        proxies => {
            for (i, proxy) in proxies.iter().enumerate() {
                let subject = if i == 0 { "proxies" } else { "" };
                line(subject, format!("{}={}: {}", proxy.name, proxy.value, proxy.warning));
            }
        }
    }
    let tensorflow = &report.tensorflow;
    line(
        "TensorFlow",
        match (&tensorflow.path, &tensorflow.version) {
            (Some(path), Some(version)) => format!("{version} in {path} ({})", tensorflow.how),
            (Some(path), None) => format!("unknown version in {path} ({})", tensorflow.how),
            (None, _) => format!("not found ({})", tensorflow.how),
        },
    );
    out
}

fn interface_line(interface: &Interface) -> String {
    let speed = match interface.megabits {
        None => String::new(),
        Some(megabits) if megabits % 1000 == 0 => format!(", {} Gb/s", megabits / 1000),
        Some(megabits) => format!(", {megabits} Mb/s"),
    };
    format!("{} on {} ({}{speed})", interface.address, interface.name, interface.kind.name())
}
