//! Every captured Slurm job: each task knows its own rank and host, all tasks of a step agree on
//! ranks and roles, and nobody is put on a wrong host.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use rallypoint::allocation::Allocation;
use rallypoint::environ::Environ;
use rallypoint::plan::{JobSpec, Plan};
use rallypoint::roles::{PsPlace, RoleRequest, Workers};
use rallypoint::scheduler::{self, On};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

struct Job {
    name: String,
    tasks: Vec<(String, Environ)>,
}

/// The truth in `inner-step0-r2-n03.1`: prefix and array number tell the steps apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Truth {
    step: (String, String, String),
    rank: u32,
    host: String,
}

fn jobs() -> Vec<Job> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/slurm");
    let mut jobs = Vec::new();
    for version in std::fs::read_dir(root).unwrap().flatten() {
        for case in std::fs::read_dir(version.path()).unwrap().flatten() {
            let case = case.path();
            let version = version.file_name().into_string().unwrap();
            let name = format!("{version}/{}", case.file_stem().unwrap().to_str().unwrap());
            jobs.push(Job { name, tasks: tasks(&std::fs::read_to_string(&case).unwrap()) });
        }
    }
    assert!(jobs.len() > 300, "only {} jobs", jobs.len());
    jobs.sort_by(|a, b| a.name.cmp(&b.name));
    jobs
}

fn tasks(text: &str) -> Vec<(String, Environ)> {
    let mut sections: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match (line.strip_prefix("== "), line.split_once('=')) {
            (Some(heading), _) => sections.push((heading.to_owned(), Vec::new())),
            (None, Some((name, value))) => {
                sections.last_mut().unwrap().1.push((name.to_owned(), value.to_owned()));
            }
            _ => panic!("{line:?}"),
        }
    }
    let common = match sections.first() {
        Some((heading, _)) if heading == "every task" => sections.remove(0).1,
        _ => Vec::new(),
    };
    sections
        .into_iter()
        .map(|(heading, own)| (heading, Environ::from_variables(common.iter().cloned().chain(own))))
        .collect()
}

fn truth(task: &str) -> Option<Truth> {
    let (prefix, rest) = task.split_once("step")?;
    let (step, rest) = rest.split_once("-r")?;
    // Interactive steps (-6, 4294967290) are shells.
    let id: u32 = step.parse().ok().filter(|&id| id < 1_000_000)?;
    let (rank, host) = rest.split_once('-')?;
    let (host, array) = match host.rsplit_once('.') {
        Some((host, number)) if number.parse::<u32>().is_ok() => (host, number),
        _ => (host, ""),
    };
    let step = (prefix.to_owned(), id.to_string(), array.to_owned());
    Some(Truth { step, rank: rank.parse().ok()?, host: host.to_owned() })
}

fn allocation(job: &Job, task: &str, environ: &Environ) -> Allocation {
    scheduler::allocation(environ, On::Auto, &RoleRequest::default())
        .unwrap_or_else(|error| panic!("{} {task}: {error}", job.name))
}

fn host_of(allocation: &Allocation, rank: u32) -> Option<&str> {
    let place = allocation.slots[rank as usize].place?;
    Some(allocation.hosts[place.host as usize].name.as_str())
}

/// A het step inside an ordinary job has no variable that says so; from the host whose number happens
/// to fit, everything looks like an ordinary step.
fn cannot_be_told(job: &str, task: &str) -> bool {
    job.ends_with("/hetstep_mid_lucky") && task == "step0-r2-n02"
}

#[test]
fn every_task_knows_itself_and_puts_nobody_on_a_wrong_host() {
    let mut checked = 0;
    for job in jobs() {
        let truths: BTreeMap<(_, u32), String> = job
            .tasks
            .iter()
            .filter_map(|(task, _)| truth(task))
            .map(|truth| ((truth.step, truth.rank), truth.host))
            .collect();
        for (task, environ) in &job.tasks {
            let Some(Truth { step, rank, host }) = truth(task) else { continue };
            let allocation = allocation(&job, task, environ);
            assert_eq!(allocation.me, Some(rank), "{} {task}", job.name);
            assert_eq!(host_of(&allocation, rank), Some(host.as_str()), "{} {task}", job.name);
            if cannot_be_told(&job.name, task) {
                continue;
            }
            for other in 0..allocation.world() {
                if let (Some(claimed), Some(true_host)) =
                    (host_of(&allocation, other), truths.get(&(step.clone(), other)))
                {
                    assert_eq!(claimed, true_host, "{} {task}: rank {other}", job.name);
                }
            }
            checked += 1;
        }
    }
    assert!(checked > 2000, "only {checked} tasks");
}

#[test]
fn all_tasks_of_a_step_agree_on_ranks_and_roles() {
    let spec = JobSpec {
        roles: RoleRequest::Counts {
            chief: false,
            evaluator: false,
            ps: 1,
            workers: Workers::Rest,
            place: PsPlace::Pack,
        },
        ..JobSpec::default()
    };
    for job in jobs() {
        let mut views: BTreeMap<_, BTreeSet<Vec<_>>> = BTreeMap::new();
        for (task, environ) in &job.tasks {
            let Some(truth) = truth(task) else { continue };
            let plan = Plan::new(allocation(&job, task, environ), &spec).unwrap();
            let view = plan.members().iter().map(|m| (m.rank, m.role.to_string(), m.index)).collect();
            views.entry(truth.step).or_default().insert(view);
        }
        for (step, views) in views {
            assert_eq!(views.len(), 1, "{} {step:?}", job.name);
        }
    }
}

#[test]
fn local_ranks_are_slurms_own() {
    for job in jobs() {
        for (task, environ) in &job.tasks {
            let Some(Truth { rank, .. }) = truth(task) else { continue };
            let local = allocation(&job, task, environ).slots[rank as usize].place.unwrap().local_rank;
            assert_eq!(Some(local.to_string().as_str()), environ.get("SLURM_LOCALID"), "{} {task}", job.name);
        }
    }
}

#[test]
fn hosts_are_left_out_only_for_arbitrary_and_het_steps() {
    for job in jobs() {
        for (task, environ) in job.tasks.iter().filter(|(task, _)| truth(task).is_some()) {
            let arbitrary = environ.get("SLURM_DISTRIBUTION") == Some("arbitrary");
            let het = environ.get("SLURM_HET_SIZE").is_some() || job.name.contains("/hetstep_");
            let allocation = allocation(&job, task, environ);
            assert!(allocation.is_placed() || arbitrary || het, "{} {task}", job.name);
            assert!(
                allocation.is_placed() || !allocation.notes.is_empty(),
                "{} {task} says no reason",
                job.name
            );
        }
    }
}

#[test]
fn batch_scripts_and_shells_have_no_rank() {
    let mut checked = 0;
    for job in jobs() {
        for (task, environ) in job.tasks.iter().filter(|(task, _)| truth(task).is_none()) {
            // A shell of salloc inside a step inherits everything, its task's proof included.
            if job.name.contains("/salloc_in_step") && task.contains("shell") {
                continue;
            }
            let allocation = allocation(&job, task, environ);
            assert_eq!(allocation.me, None, "{} {task}", job.name);
            assert!(allocation.world() > 0, "{} {task}", job.name);
            checked += 1;
        }
    }
    assert!(checked > 200, "only {checked}");
}

#[test]
fn a_batch_script_plans_the_step_that_srun_then_starts() {
    // Plain `srun` in the script: what the batch script foresees is what the step's tasks see.
    for case in
        ["sbatch_N2_tpn2", "sbatch_N3_n5", "sbatch_dist_cyclic", "sbatch_N2_no_ntasks", "sbatch_n4_no_nodes"]
    {
        for job in jobs().iter().filter(|job| job.name.ends_with(&format!("/{case}"))) {
            let foreseen = job.tasks.iter().find(|(task, _)| task.starts_with("batch")).unwrap();
            let foreseen = allocation(job, &foreseen.0, &foreseen.1);
            for (task, _) in &job.tasks {
                let Some(Truth { rank, host, .. }) = truth(task) else { continue };
                assert_eq!(host_of(&foreseen, rank), Some(host.as_str()), "{} {task}", job.name);
            }
        }
    }
}

#[test]
fn a_requeued_job_is_the_next_attempt() {
    for job in jobs().iter().filter(|job| job.name.contains("requeued_once")) {
        for (task, environ) in &job.tasks {
            assert_eq!(allocation(job, task, environ).attempt, 1);
        }
    }
}

/// What the tasks of `case` may use, by rank: `0,1` or `?`.
fn devices(case: &str) -> Vec<String> {
    let all = jobs();
    let job = all.iter().find(|job| job.name == case).unwrap_or_else(|| panic!("{case}"));
    job.tasks
        .iter()
        .filter_map(|(task, environ)| truth(task).map(|truth| (truth.rank, task, environ)))
        .map(|(rank, task, environ)| {
            let plan = Plan::new(allocation(job, task, environ), &JobSpec::default()).unwrap();
            match &plan.members()[rank as usize].devices {
                Some(devices) => rallypoint::devices::join(devices),
                None => "?".to_owned(),
            }
        })
        .collect()
}

#[test]
fn gpus_are_split_kept_or_left_alone() {
    for version in ["22.05", "24.11"] {
        let of = |case: &str| devices(&format!("{version}/{case}"));
        assert_eq!(of("sbatch_N2_tpn2_gpu4"), ["0,1", "2,3", "0,1", "2,3"]);
        assert_eq!(of("srun_n4_gpus_per_task1"), ["0", "1", "2", "3"]);
        assert_eq!(of("srun_n4_gpus_per_node4_bind_map"), ["3", "2", "1", "0"]);
        assert_eq!(of("sbatch_N2_tpn4_gpus_per_task1"), ["0", "1", "2", "3", "0", "1", "2", "3"]);
        assert_eq!(of("sbatch_gpu_step_gres_none"), ["", ""]);
        assert_eq!(of("srun_N2_gpus_uneven_gpus4"), ["0,1,2", "0"]);
        assert_eq!(of("srun_no_gpu_on_gpu_node"), ["", ""]);
        assert_eq!(of("het_srun_2x2_1"), ["0,1", "2,3", "0,1", "2,3", ""]);
    }
    assert_eq!(devices("24.11/srun_n4_gpus_per_task1_bind_none"), ["0", "1", "2", "3"]);
    assert_eq!(devices("22.05/srun_n4_gpus_per_task1_bind_none"), ["?"; 4]);
}

#[test]
fn a_host_file_settles_an_arbitrary_layout() {
    for job in jobs().iter().filter(|job| job.name.ends_with("/dist_arbitrary_hostfile")) {
        for (task, environ) in &job.tasks {
            let environ = environ.clone().with_file("SLURM_HOSTFILE", "# hosts\nn03\nn01\nn03\nn02\nn01\n");
            let allocation = allocation(job, task, &environ);
            let hosts: Vec<_> = (0..5).map(|rank| host_of(&allocation, rank).unwrap()).collect();
            assert_eq!(hosts, ["n03", "n01", "n03", "n02", "n01"]);
            // A file that has changed since is not believed.
            let stale = environ.with_file("SLURM_HOSTFILE", "n01\nn01\nn01\nn02\nn03\n");
            assert!(!self::allocation(job, task, &stale).is_placed());
        }
    }
}

#[test]
fn reserved_ports_are_read() {
    let all = jobs();
    let job = all.iter().find(|job| job.name == "26.05/resv_ports_4").unwrap();
    for (task, environ) in job.tasks.iter().filter(|(task, _)| truth(task).is_some()) {
        let ports = allocation(job, task, environ).ports.unwrap();
        let text = environ.get("SLURM_STEP_RESV_PORTS").unwrap();
        let (first, last) = text.split_once('-').unwrap();
        assert_eq!(ports.first().unwrap().to_string(), first);
        assert_eq!(ports.last().unwrap().to_string(), last);
        assert_eq!(ports.len(), 4);
    }
}

/// `n01:0,1 n02:2,3 ?:4`: who is where, as one task sees it.
fn summary(allocation: &Allocation) -> String {
    let mut by_host: BTreeMap<usize, (String, Vec<String>)> = BTreeMap::new();
    for (rank, slot) in allocation.slots.iter().enumerate() {
        let (key, name) = match slot.place {
            Some(place) => (place.host as usize, allocation.hosts[place.host as usize].name.clone()),
            None => (usize::MAX, "?".to_owned()),
        };
        by_host.entry(key).or_insert((name, Vec::new())).1.push(rank.to_string());
    }
    by_host
        .into_values()
        .map(|(name, ranks)| format!("{name}:{}", ranks.join(",")))
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn layouts_of_all_jobs() {
    let mut lines = Vec::new();
    for job in jobs() {
        let mut seen = BTreeSet::new();
        for (task, environ) in &job.tasks {
            // The first task of each step, and what stands outside of steps.
            let step = truth(task).map(|truth| truth.step);
            if seen.insert(step) {
                let allocation = allocation(&job, task, environ);
                lines.push(format!("{} {task}: {}", job.name, summary(&allocation)));
            }
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}
