//! What must hold for any input.

mod sound;

use proptest::prelude::*;
use rallypoint::allocation::{Allocation, Host, HostGpus, Place, Slot};
use rallypoint::devices::Device;
use rallypoint::environ::Environ;
use rallypoint::hostlist::{HostList, Order};
use rallypoint::plan::{GpuRequest, JobSpec, Plan};
use rallypoint::roles::{PsPlace, RoleRequest, Workers};
use rallypoint::scheduler::{self, On};
use sound::{check_allocation, check_plan};

fn host_name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,3}[0-9]{1,4}",
        "[a-z]{1,3}[0-9]{0,2}[a-z-]{1,3}[0-9]{0,3}",
        "n0{0,3}[0-9]{1,2}",
        "[0-9]{15,25}",
        "[^,\\[\\]\\s]{1,6}",
    ]
}

/// Text made of the characters that matter, so that more than errors come out.
fn list_like() -> impl Strategy<Value = String> {
    prop_oneof!["[na0-3,\\[\\]\\- ]{0,24}", "\\PC{0,40}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn expanding_what_was_folded_gives_the_names(names in prop::collection::vec(host_name(), 0..40)) {
        let folded = HostList::fold(&names, Order::Kept).unwrap();
        prop_assert_eq!(folded.names().collect::<Vec<_>>(), names.clone());
        let reread: HostList = folded.to_string().parse().unwrap();
        prop_assert_eq!(reread.names().collect::<Vec<_>>(), names.clone());
        let mut sorted: Vec<String> = HostList::fold(&names, Order::Sorted).unwrap().names().collect();
        let mut expected = names;
        sorted.sort();
        expected.sort();
        prop_assert_eq!(sorted, expected);
    }

    #[test]
    fn any_text_is_a_list_or_an_error(text in list_like()) {
        match text.parse::<HostList>() {
            Ok(list) => {
                prop_assert_eq!(list.names().take(5000).count() as u64, list.count().min(5000));
                // A stray bracket may stand in a name; printed again it would mean something.
                let names: Vec<String> = list.names().take(500).collect();
                if !names.iter().any(|name| name.contains(['[', ']', ' '])) {
                    let again: HostList = list.to_string().parse().unwrap();
                    prop_assert_eq!(again.names().take(500).collect::<Vec<_>>(), names);
                }
            }
            Err(error) => prop_assert!(error.to_string().contains("bad host list"), "{error}"),
        }
    }

    #[test]
    fn any_bytes_are_a_list_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(list) = text.parse::<HostList>() {
            prop_assert!(list.names().take(100).count() as u64 <= list.count());
        }
    }

    #[test]
    fn any_slurm_variables_are_an_allocation_or_an_error(
        values in prop::collection::vec((0usize..VARIABLES.len(), value()), 0..14)
    ) {
        let environ = Environ::from_variables(values.into_iter().map(|(which, value)| (VARIABLES[which], value)));
        if let Ok(allocation) = scheduler::allocation(&environ, On::Scheduler(&scheduler::slurm::Slurm), &RoleRequest::default()) {
            check_allocation(&allocation);
            if let Ok(plan) = Plan::new(allocation, &JobSpec::default()) {
                check_plan(&plan);
            }
        }
    }

    #[test]
    fn any_job_ad_is_an_allocation_or_an_error(text in "((ClusterId|ProcId|TotalSubmitProcs|JobRunCount|x) = [0-9a\"\\-]{0,4}\n){0,5}\\PC{0,20}") {
        let environ = Environ::from_variables([("_CONDOR_JOB_AD", "job.ad"), ("_CONDOR_SLOT", "slot1")])
            .with_file("_CONDOR_JOB_AD", &text);
        if let Ok(allocation) = scheduler::allocation(&environ, On::Scheduler(&scheduler::htcondor::HtCondor), &RoleRequest::default()) {
            check_allocation(&allocation);
        }
    }

    #[test]
    fn every_plan_is_sound(
        tasks in prop::collection::vec(1u32..6, 1..6),
        gpus in 0u32..9,
        per_task in prop::option::of(0u32..3),
        ps in 0u32..4,
        ps_gpus in 0u32..2,
        chief: bool,
        spread: bool,
    ) {
        let allocation = allocation(&tasks, gpus);
        let world = allocation.world();
        let place = if spread { PsPlace::Spread } else { PsPlace::Pack };
        let spec = JobSpec {
            roles: RoleRequest::Counts { chief, evaluator: false, ps, workers: Workers::Rest, place },
            gpus: GpuRequest { per_task, ps: ps_gpus, ..GpuRequest::default() },
            cpus_per_task: None,
        };
        match Plan::new(allocation, &spec) {
            Ok(plan) => {
                check_plan(&plan);
                prop_assert_eq!(plan.members().iter().filter(|m| m.role.as_str() == "ps").count() as u32, ps);
            }
            Err(error) => prop_assert!(
                ps + u32::from(chief) > world || per_task.is_some() || ps_gpus > 0,
                "{error}"
            ),
        }
    }
}

const VARIABLES: [&str; 16] = [
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_PROCID",
    "SLURM_NODEID",
    "SLURM_LOCALID",
    "SLURM_GTIDS",
    "SLURMD_NODENAME",
    "SLURM_DISTRIBUTION",
    "SLURM_JOB_NODELIST",
    "SLURM_TASKS_PER_NODE",
    "SLURM_NTASKS",
    "SLURM_HET_SIZE",
    "SLURM_JOB_NODELIST_HET_GROUP_0",
];

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("n[1-3]".to_owned()),
        Just("2(x2),1".to_owned()),
        Just("1(x3)".to_owned()),
        "[0-5]",
        "n[1-3]",
        "(block|cyclic|plane=2|arbitrary)",
        "[0-4](,[0-4]){0,3}",
        "\\PC{0,6}",
    ]
}

/// Hosts with the given numbers of tasks in blocks, each with `gpus` GPUs.
fn allocation(tasks: &[u32], gpus: u32) -> Allocation {
    let hosts = (0..tasks.len())
        .map(|i| Host { name: format!("n{i}"), gpus: HostGpus::Shared(Device::first(gpus)) })
        .collect();
    let slots = tasks
        .iter()
        .enumerate()
        .flat_map(|(host, &count)| {
            (0..count).map(move |local_rank| Slot {
                place: Some(Place { host: host as u32, local_rank }),
                cpus: Some(1),
            })
        })
        .collect();
    Allocation {
        scheduler: scheduler::slurm::SOURCE,
        job: Some("1".to_owned()),
        attempt: 0,
        restarts: None,
        hosts,
        slots,
        me: None,
        bound: None,
        deadline: None,
        ports: None,
        notes: Vec::new(),
    }
}
