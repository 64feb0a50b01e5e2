//! What each stage costs for 10,000 hosts with 8 tasks each: `cargo bench -p rallypoint`.

use rallypoint::environ::Environ;
use rallypoint::framework::tensorflow;
use rallypoint::hostlist::{HostList, Order};
use rallypoint::plan::{JobSpec, Plan};
use rallypoint::roles::RoleRequest;
use rallypoint::roster::{Addressing, Roster, StaticPorts};
use rallypoint::scheduler::{self, On};

fn main() {
    divan::main();
}

#[divan::bench]
fn expand_a_million_names(bencher: divan::Bencher<'_, '_>) {
    let list: HostList = "n[0000001-1000000]".parse().unwrap_or_default();
    bencher.bench(|| {
        let mut names = list.names();
        let mut name = String::new();
        let mut bytes = 0;
        while names.next_into(&mut name) {
            bytes += name.len();
            name.clear();
        }
        bytes
    });
}

#[divan::bench]
fn fold_a_hundred_thousand_names(bencher: divan::Bencher<'_, '_>) {
    let names: Vec<String> = (0..100_000).map(|number| format!("n{number:06}")).collect();
    bencher.bench(|| HostList::fold(&names, Order::Kept));
}

fn environ() -> Environ {
    Environ::from_variables([
        ("SLURM_JOB_ID", "1"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NODELIST", "n[00001-10000]"),
        ("SLURM_STEP_TASKS_PER_NODE", "8(x10000)"),
        ("SLURM_STEP_NUM_TASKS", "80000"),
        ("SLURM_PROCID", "79999"),
        ("SLURM_NODEID", "9999"),
        ("SLURM_LOCALID", "7"),
        ("SLURM_GTIDS", "79992,79993,79994,79995,79996,79997,79998,79999"),
        ("SLURMD_NODENAME", "n10000"),
        ("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"),
    ])
}

fn plan() -> Option<Plan> {
    let allocation = scheduler::allocation(&environ(), On::Auto, &RoleRequest::default()).ok()?;
    Plan::new(allocation, &JobSpec::default()).ok()
}

#[divan::bench]
fn slurm_environ_to_allocation(bencher: divan::Bencher<'_, '_>) {
    let environ = environ();
    bencher.bench(|| scheduler::allocation(&environ, On::Auto, &RoleRequest::default()));
}

#[divan::bench]
fn slurm_environ_to_plan() -> Option<Plan> {
    plan()
}

#[divan::bench]
fn plan_to_tf_config(bencher: divan::Bencher<'_, '_>) {
    bencher.with_inputs(plan).bench_values(|plan| {
        let roster = Roster::from_static(plan?, &StaticPorts::Base(8888), &Addressing::default()).ok()?;
        Some(tensorflow::tf_config(&roster, &roster.plan().members()[0]))
    });
}
