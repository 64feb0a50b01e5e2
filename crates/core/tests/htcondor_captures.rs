//! Captured HTCondor jobs of 23.9 and 25.14, both universes.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use rallypoint::allocation::{Allocation, IndependentRestarts};
use rallypoint::hint::Hinted;

use rallypoint::environ::{Environ, MovedFiles};
use rallypoint::roles::RoleRequest;
use rallypoint::scheduler::{self, On, htcondor};
use std::path::PathBuf;

fn environ(case: &str) -> Environ {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/htcondor").join(case);
    let ad = |name: &str| folder.join(name).exists().then(|| PathBuf::from(name));
    let ads = [("_CONDOR_JOB_AD", ad("job.ad")), ("_CONDOR_MACHINE_AD", ad("machine.ad"))];
    let moved: MovedFiles = ads.into_iter().filter_map(|(variable, file)| Some((variable, file?))).collect();
    scheduler::environ_from_file(&folder.join("job.env"), &moved).unwrap()
}

fn allocation(case: &str) -> Allocation {
    scheduler::allocation(&environ(case), On::Auto, &RoleRequest::default()).unwrap()
}

fn hosts(allocation: &Allocation) -> Vec<Option<&str>> {
    allocation
        .slots
        .iter()
        .map(|slot| slot.place.map(|place| allocation.hosts[place.host as usize].name.as_str()))
        .collect()
}

#[test]
fn vanilla_jobs_know_themselves_alone() {
    for (case, host, gpus, cpus) in [
        ("vanilla_proc0", "vm", "", 2),
        ("vanilla_gpu_proc0", "ex1.lab", "GPU-a0223334", 3),
        ("vanilla_gpu_proc0_condor25", "ex1.lab", "GPU-a0223334-4445-5667-899a-abbccddeeff0", 3),
    ] {
        let allocation = allocation(case);
        assert_eq!(allocation.job.as_deref(), Some("1"), "{case}");
        assert_eq!((allocation.me, allocation.world(), allocation.attempt), (Some(0), 3, 0), "{case}");
        assert_eq!(hosts(&allocation), [Some(host), None, None], "{case}");
        assert_eq!(rallypoint::devices::join(allocation.bound.as_ref().unwrap()), gpus, "{case}");
        assert_eq!(allocation.slots[0].cpus, Some(cpus), "{case}");
    }
}

#[test]
fn parallel_nodes_know_all_hosts_in_node_order() {
    for node in 0..3 {
        let allocation = allocation(&format!("parallel_node{node}"));
        assert_eq!((allocation.me, allocation.world()), (Some(node), 3));
        assert_eq!(hosts(&allocation), [Some("ex2.lab"), Some("ex1.lab"), Some("ex1.lab")]);
        let local: Vec<_> = allocation.slots.iter().map(|slot| slot.place.unwrap().local_rank).collect();
        assert_eq!(local, [0, 0, 1]);
    }
}

#[test]
fn a_list_of_hosts_that_has_me_elsewhere_is_not_believed() {
    let variables: Vec<_> =
        environ("parallel_node1").variables().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let environ = Environ::from_variables(variables)
        .with_file("_CONDOR_JOB_AD", "ClusterId = 3\nAllRemoteHosts = \"slot9@a,slot8@b,slot7@c\"\n");
    let allocation = scheduler::allocation(&environ, On::Auto, &RoleRequest::default()).unwrap();
    assert!(hosts(&allocation).iter().all(Option::is_none));
}

#[test]
fn without_the_job_ad_the_error_says_how_to_give_it() {
    let error = scheduler::allocation(&environ("vanilla_nogpu_condor25"), On::Auto, &RoleRequest::default())
        .unwrap_err();
    assert!(error.to_string().starts_with("_CONDOR_JOB_AD=/var/lib/condor/"), "{error}");
    assert!(error.hint().unwrap().typed().ends_with("give the ad with --job-ad FILE"), "{:?}", error.hint());
}

#[test]
fn nodes_are_started_again_together_and_procs_apart() {
    let ad = |run: u32| format!("ClusterId = 9\nProcId = 1\nTotalSubmitProcs = 2\nJobRunCount = {run}\n");
    let read = |variables: &[(&str, &str)], ad: &str| {
        let environ = Environ::from_variables(variables.iter().copied()).with_file("_CONDOR_JOB_AD", ad);
        scheduler::allocation(&environ, On::Auto, &RoleRequest::default()).unwrap()
    };
    let vanilla = [("_CONDOR_JOB_AD", "x")];
    let parallel = [("_CONDOR_JOB_AD", "x"), ("_CONDOR_PROCNO", "1"), ("_CONDOR_NPROCS", "2")];
    for (run, before) in [(1, 0), (3, 2)] {
        let nodes = read(&parallel, &ad(run));
        assert_eq!((nodes.attempt, nodes.restarts), (before, None));
        // Nobody knows how often the other procs were started: the attempt is agreed on when they meet.
        let procs = read(&vanilla, &ad(run));
        assert_eq!(
            (procs.attempt, procs.restarts),
            (0, Some(IndependentRestarts { previous_runs: before, others_retry: false }))
        );
    }
    let retried =
        ad(1) + "JobMaxRetries = 2\nOnExitRemove = NumJobCompletions > JobMaxRetries || ExitCode =?= 0\n";
    assert!(read(&vanilla, &retried).restarts.unwrap().others_retry);
}

#[test]
fn the_submit_directory_is_shared_where_the_job_runs_in_it() {
    let read = |iwd: &str, ad: &str| {
        let variables =
            [("_CONDOR_JOB_AD", "x"), ("_CONDOR_JOB_IWD", iwd), ("_CONDOR_SCRATCH_DIR", "/execute/dir_1")];
        let environ = Environ::from_variables(variables).with_file("_CONDOR_JOB_AD", ad);
        (htcondor::submit_directory(&environ), htcondor::cluster_name(&environ))
    };
    let id = "ClusterId = 12\nGlobalJobId = \"cm.lab#12.0#1794781739\"\n";
    let transferred = format!("{id}Iwd = \"/execute/dir_1\"\nOrigIwd = \"/home/me/job\"\n");
    let (folder, name) = read("/execute/dir_1", &transferred);
    assert_eq!((folder, name.as_deref()), (Some(("/home/me/job".to_owned(), false)), Some("cm.lab-12")));
    let (folder, _) = read("/home/me/job", "ClusterId = 12\nIwd = \"/home/me/job\"\n");
    assert_eq!(folder, Some(("/home/me/job".to_owned(), true)));
    let (folder, _) = read("/execute/dir_1", "ClusterId = 12\nIwd = \"/execute/dir_1\"\n");
    assert_eq!(folder, Some(("/execute/dir_1".to_owned(), false)), "the scratch directory is never shared");
}

#[test]
fn ads_that_lack_what_is_needed() {
    for (ad, word) in [
        ("ClusterId = 1\nTotalSubmitProcs = 3\n", "ProcId is missing"),
        ("ClusterId = 1\nProcId = 5\nTotalSubmitProcs = 3\n", "rank 5 is outside"),
        ("ProcId = \"a\"\n", "ProcId is missing or not a number"),
    ] {
        let environ = Environ::from_variables([("_CONDOR_JOB_AD", "job.ad")]).with_file("_CONDOR_JOB_AD", ad);
        let error =
            scheduler::allocation(&environ, On::Auto, &RoleRequest::default()).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}
