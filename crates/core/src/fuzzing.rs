//! What the fuzzers of `fuzz/` run: one function per reader of bytes from outside, with what must hold for any bytes.
//!
//! Behind the feature `fuzzing`, for tests alone. Each function runs the code that a job runs, and panics where something
//! does not hold; `docs/design/fuzzing.md` lists them. What is private to a room is fuzzed from inside of it, in a file
//! called `fuzzing.rs`.

#[path = "../tests/sound/mod.rs"]
mod sound;

pub use crate::rendezvous::fuzzing::{contact, frames, handshake, to_leader, to_member};
pub use crate::scheduler::htcondor::fuzzing::{chirp, leader_ad, user_log};
pub use crate::scheduler::slurm::fuzzing::pmi;
pub use crate::serve::fuzzing::{config_proto, server_def};

use crate::check::{ConfigFile, Strategy, check};
use crate::environ::Environ;
use crate::event::RunEvent;
use crate::hint::{Hinted, in_full};
use crate::hostlist::{HostList, Order};
use crate::names::Names;
use crate::plan::{JobSpec, Plan};
use crate::roles::RoleRequest;
use crate::scheduler::htcondor::HtCondor;
use crate::scheduler::slurm::Slurm;
use crate::scheduler::{self, On, Scheduler};
use crate::serve::Definition;
use crate::variables as var;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// A target: its name, which is that of its corpus, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: &[Target] = &[
    ("chirp", chirp),
    ("config_proto", config_proto),
    ("contact", contact),
    ("event", event),
    ("frames", frames),
    ("handshake", handshake),
    ("hostlist", hostlist),
    ("htcondor", htcondor),
    ("leader_ad", leader_ad),
    ("pmi", pmi),
    ("server_def", server_def),
    ("slurm", slurm),
    ("tf_config", tf_config),
    ("to_leader", to_leader),
    ("to_member", to_member),
    ("user_log", user_log),
];

/// Parts several texts in one input.
const BETWEEN: &str = "\n==\n";

/// As many names are looked at; more are only counted.
const MOST_NAMES: usize = 2000;

/// Members beyond this take their time, and show nothing that fewer would not.
const MOST_MEMBERS: u32 = 5000;

/// The most that the names of a host list may come to.
const MOST_BYTES: u64 = 1 << 28;

/// A host list is a list or an error; its names printed, folded and read again are the same names.
pub fn hostlist(data: &[u8]) {
    let text = text(data);
    let list = match text.parse::<HostList>() {
        Ok(list) => list,
        Err(error) => return said(&error),
    };
    let names: Vec<String> = list.names().take(MOST_NAMES).collect();
    assert_eq!(names.len() as u64, list.count().min(MOST_NAMES as u64));
    let longest = names.iter().map(String::len).max().unwrap_or(0);
    assert!(list.count().saturating_mul(longest as u64) <= MOST_BYTES.max(text.len() as u64), "too large");
    // A stray bracket may stand in a name; printed again it would mean something.
    if names.iter().any(|name| name.contains(|c: char| "[]".contains(c) || c.is_ascii_whitespace())) {
        return;
    }
    let again = |list: &HostList| -> HostList { list.to_string().parse().expect("what was printed") };
    assert_eq!(again(&list).count(), list.count());
    assert!(again(&list).names().take(MOST_NAMES).eq(names.iter().cloned()));
    let kept = HostList::fold(&names, Order::Kept).expect("names of a list");
    assert!(kept.names().eq(names.iter().cloned()) && again(&kept).names().eq(names.iter().cloned()));
    assert_eq!(again(&kept).to_string(), kept.to_string());
    let sorted = HostList::fold(&names, Order::Sorted).expect("names of a list");
    assert_eq!(HostList::fold(sorted.names(), Order::Sorted).as_ref(), Ok(&sorted));
    let (mut expected, mut found) = (names, sorted.names().collect::<Vec<_>>());
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

/// Slurm's variables, as `env` prints them, are a sound allocation and plan, or an error.
pub fn slurm(data: &[u8]) {
    let Ok(variables) = crate::environ::parse_variables(Path::new("job.env"), &text(data)) else { return };
    let takes_its_time = |value: &String| {
        value.parse::<HostList>().is_ok_and(|list| list.count() > u64::from(MOST_MEMBERS))
            || value.trim().parse().is_ok_and(|number: u32| (MOST_MEMBERS..1 << 23).contains(&number))
    };
    if variables.values().any(takes_its_time) {
        return;
    }
    let hosts = variables.get(var::SLURM_HOSTFILE).cloned().unwrap_or_default();
    let environ =
        Environ::from_variables(variables).with_file(var::SLURM_HOSTFILE, &hosts.replace(',', "\n"));
    allocated(&environ, &Slurm);
    _ = scheduler::allocation(&environ, On::Auto, &RoleRequest::default());
}

/// A job's ad, its machine's and its variables are a sound allocation and plan, or an error.
pub fn htcondor(data: &[u8]) {
    let text = text(data);
    let mut parts = text.splitn(3, BETWEEN);
    let mut part = || parts.next().unwrap_or_default();
    let (job, machine, variables) = (part(), part(), part());
    let Ok(variables) = crate::environ::parse_variables(Path::new("job.env"), variables) else { return };
    let environ = Environ::from_variables(variables)
        .with_file(var::CONDOR_JOB_AD, job)
        .with_file(var::CONDOR_MACHINE_AD, machine);
    allocated(&environ, &HtCondor);
    for (name, value) in crate::scheduler::htcondor::fuzzing::class_ad(job) {
        assert!(name.len() + value.len() <= text.len());
    }
    _ = scheduler::htcondor::submit_directory(&environ);
}

/// TF_CONFIG files are read or refused; what is found in them is about them, is bounded by them, and what can be served is
/// the same as bytes.
pub fn tf_config(data: &[u8]) {
    let text = text(data);
    let mut files = Vec::new();
    for (number, part) in text.split(BETWEEN).take(4).enumerate() {
        match ConfigFile::parse(&format!("{number}.json"), part) {
            Ok(file) => files.push(file),
            Err(error) => said(&error),
        }
    }
    let listed: usize = files.iter().flat_map(|file| file.cluster.values()).map(Vec::len).sum();
    assert!(listed <= 4 << 20, "{listed} members of {} bytes", text.len());
    for strategy in [Strategy::Auto, Strategy::ParameterServer, Strategy::MultiWorkerMirrored] {
        let findings = check(&files, strategy);
        assert_eq!(check(&files, strategy), findings);
        let said: usize = findings.iter().map(|finding| finding.problem.len() + finding.fix.len()).sum();
        assert!(said <= 4096 + 200 * text.len(), "{said} bytes about {} bytes", text.len());
        assert!(findings.iter().all(|finding| files.iter().any(|file| file.name == finding.file)));
    }
    let first = text.split(BETWEEN).next().unwrap_or_default();
    match Definition::from_tf_config("TF_CONFIG", first) {
        Ok(served) => {
            let again = Definition::from_server_def("TF_CONFIG", served.bytes()).expect("what is served");
            assert_eq!((again.role, again.index, again.port), (served.role, served.index, served.port));
        }
        Err(error) => said(&error),
    }
}

/// Lines of an events file are events or errors; an event that is written and read again is the same.
pub fn event(data: &[u8]) {
    for line in text(data).lines().take(16) {
        comes_back::<RunEvent>(line);
        if let Some(names) = comes_back::<Names>(line) {
            assert_eq!(names.is_empty(), names.to_string().is_empty());
        }
    }
}

/// The allocation of these variables, if there is one, is sound, and so is the plan that follows.
fn allocated(environ: &Environ, scheduler: &'static dyn Scheduler) {
    _ = (scheduler.look_around(environ), scheduler.job_name(environ));
    let roles = RoleRequest::default();
    let allocation = match scheduler::allocation(environ, On::Scheduler(scheduler), &roles) {
        Ok(allocation) => allocation,
        Err(error) => return said(&error),
    };
    if allocation.world() > MOST_MEMBERS {
        return;
    }
    sound::check_allocation(&allocation);
    match Plan::new(allocation, &JobSpec::default()) {
        Ok(plan) => sound::check_plan(&plan),
        Err(error) => said(&error),
    }
}

/// Bytes as the readers take them: what is no text is shown as such.
pub(crate) fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// An error can be told, with its hint.
pub(crate) fn said(error: &dyn Hinted) {
    assert!(!in_full(error).is_empty());
}

/// A value that JSON gives, printed and read again, is the same. Compared as text: numbers with a point lose a last digit
/// once, when they are read first.
pub(crate) fn comes_back<T: Serialize + DeserializeOwned>(json: &str) -> Option<T> {
    let value: T = serde_json::from_str(json).ok()?;
    let printed = |value: &T| serde_json::to_string(value).expect("a value that was read");
    let once: T = serde_json::from_str(&printed(&value)).expect("what was printed");
    let twice: T = serde_json::from_str(&printed(&once)).expect("what was printed");
    assert_eq!(printed(&twice), printed(&once));
    Some(once)
}
