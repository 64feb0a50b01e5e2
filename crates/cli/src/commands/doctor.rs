//! `rallypoint doctor`

use super::{print, print_json};
use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::printable::printable;
use crate::settings;
use rallypoint::doctor::{ProxyReport, Report};
use rallypoint::network::Interface;
use std::fmt::Write;

pub(super) fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let report = Report::new(&settings::environ(&args.captured)?);
    if args.json { print_json(&report) } else { print(render(&report).as_bytes()) }
}

/// A paragraph per subject: what was found, then from what.
fn render(report: &Report) -> String {
    let paragraphs = [
        ("scheduler", scheduler(report)),
        ("host", report.hostname.clone().into_iter().collect()),
        ("addresses", or_else(report.interfaces.iter().map(interface_line).collect(), "none found")),
        ("GPUs", vec![gpus(report)]),
        ("CPUs", cpus(report).into_iter().collect()),
        ("proxies", or_else(proxies(report), "none")),
        ("TensorFlow", vec![tensorflow(report)]),
    ];
    let mut out = String::new();
    for (subject, lines) in paragraphs {
        let subjects = [subject].into_iter().chain(std::iter::repeat(""));
        for (subject, text) in subjects.zip(lines) {
            let text = printable(&text).replace('\n', "\n            ");
            _ = writeln!(out, "{subject:<12}{text}");
        }
    }
    out
}

/// The lines, or this one where there are none.
fn or_else(lines: Vec<String>, none: &str) -> Vec<String> {
    if lines.is_empty() { vec![none.to_owned()] } else { lines }
}

fn scheduler(report: &Report) -> Vec<String> {
    let scheduler = &report.scheduler;
    let mut lines = vec![format!("{}, {}", scheduler.name, scheduler.context)];
    lines.extend(scheduler.because.iter().map(|variable| format!("{}={}", variable.name, variable.value)));
    if !scheduler.missing.is_empty() {
        lines.push(format!("not set: {}", scheduler.missing.join(", ")));
    }
    lines.extend(scheduler.problem.iter().map(|problem| format!("problem: {problem}")));
    lines
}

fn gpus(report: &Report) -> String {
    let gpus = &report.gpus;
    let found = if gpus.devices.is_empty() { "none".to_owned() } else { gpus.devices.join(",") };
    format!("{found} ({})", gpus.how)
}

fn cpus(report: &Report) -> Option<String> {
    let cpus = report.cpus.as_ref()?;
    let limit = |limit: Option<u32>| limit.map_or("no limit".to_owned(), |cpus| cpus.to_string());
    let (affinity, quota) = (limit(cpus.affinity), limit(cpus.cgroup_quota));
    let (usable, online) = (cpus.usable, cpus.online);
    Some(format!("{usable} usable ({online} online, affinity {affinity}, cgroup quota {quota})"))
}

fn proxies(report: &Report) -> Vec<String> {
    let line = |proxy: &ProxyReport| format!("{}={}: {}", proxy.name, proxy.value, proxy.warning);
    report.proxies.iter().map(line).collect()
}

fn tensorflow(report: &Report) -> String {
    let tensorflow = &report.tensorflow;
    match (&tensorflow.path, &tensorflow.version) {
        (Some(path), Some(version)) => format!("{version} in {path} ({})", tensorflow.how),
        (Some(path), None) => format!("unknown version in {path} ({})", tensorflow.how),
        (None, _) => format!("not found ({})", tensorflow.how),
    }
}

fn interface_line(interface: &Interface) -> String {
    let speed = match interface.megabits {
        None => String::new(),
        Some(megabits) if megabits % 1000 == 0 => format!(", {} Gb/s", megabits / 1000),
        Some(megabits) => format!(", {megabits} Mb/s"),
    };
    format!("{} on {} ({}{speed})", interface.address, interface.name, interface.kind.name())
}
