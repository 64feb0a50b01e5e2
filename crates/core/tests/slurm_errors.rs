//! Variables that contradict each other or are rubbish: the error names the variable and the value.

use rallypoint::environ::Environ;
use rallypoint::roles::RoleRequest;
use rallypoint::scheduler::{self, On};

const STEP: [(&str, &str); 10] = [
    ("SLURM_JOB_ID", "7"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_STEP_NODELIST", "n[1-2]"),
    ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
    ("SLURM_STEP_NUM_TASKS", "4"),
    ("SLURM_PROCID", "2"),
    ("SLURM_NODEID", "1"),
    ("SLURM_LOCALID", "0"),
    ("SLURM_GTIDS", "2,3"),
    ("SLURMD_NODENAME", "n2"),
];

fn error_with(variable: &str, value: &str) -> String {
    let variables = STEP.into_iter().filter(|(name, _)| *name != variable).chain([(variable, value)]);
    match scheduler::allocation(&Environ::from_variables(variables), On::Auto, &RoleRequest::default()) {
        Ok(allocation) => format!("no error, placed: {}", allocation.is_placed()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn errors_name_the_variable_and_the_value() {
    assert_eq!(error_with("SLURM_PROCID", "x"), "SLURM_PROCID=x is not a number");
    assert_eq!(error_with("SLURM_PROCID", "4"), "SLURM_PROCID=4 is outside of the step's 4 tasks");
    assert_eq!(
        error_with("SLURM_STEP_TASKS_PER_NODE", "2(x"),
        "SLURM_STEP_TASKS_PER_NODE=2(x: expected numbers such as 2(x3),1, found \"2(x\""
    );
    assert_eq!(
        error_with("SLURM_STEP_TASKS_PER_NODE", "2"),
        "SLURM_STEP_TASKS_PER_NODE=2: it gives numbers for 1 hosts, and there are 2"
    );
    assert_eq!(
        error_with("SLURM_STEP_NUM_TASKS", "5"),
        "SLURM_STEP_TASKS_PER_NODE=2(x2) gives 4 tasks, though SLURM_STEP_NUM_TASKS=5"
    );
    assert!(
        error_with("SLURM_STEP_NODELIST", "n[2-1]")
            .starts_with("SLURM_STEP_NODELIST: bad host list at character 3")
    );
    assert_eq!(
        error_with("SLURM_STEP_NODELIST", "n1,n1"),
        "SLURM_STEP_NODELIST names n1 twice, and a host can be in a step once"
    );
    assert!(error_with("SLURM_GTIDS", "0,1").starts_with("SLURM_GTIDS=0,1: expected ranks of this host, 2"));
    assert!(
        error_with("SLURM_STEP_RESV_PORTS", "12-x")
            .starts_with("SLURM_STEP_RESV_PORTS=12-x is not a list of ports")
    );
    assert!(error_with("CUDA_VISIBLE_DEVICES", "0,0").contains("twice"));
}

#[test]
fn a_contradiction_is_not_an_error_but_nothing_is_claimed() {
    assert_eq!(error_with("SLURM_GTIDS", "2,3"), "no error, placed: true");
    // With three hosts the others' places cannot be concluded from mine.
    let variables = STEP
        .into_iter()
        .filter(|(name, _)| {
            !["SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NUM_TASKS", "SLURM_NODEID"]
                .contains(name)
        })
        .chain([
            ("SLURM_STEP_NODELIST", "n[1-3]"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x3)"),
            ("SLURM_STEP_NUM_TASKS", "6"),
            ("SLURM_NODEID", "0"),
        ]);
    let allocation =
        scheduler::allocation(&Environ::from_variables(variables), On::Auto, &RoleRequest::default())
            .unwrap();
    let known: Vec<bool> = allocation.slots.iter().map(|slot| slot.place.is_some()).collect();
    assert_eq!(known, [false, false, true, true, false, false]);
    assert!(allocation.notes[0].contains("contradicts"), "{:?}", allocation.notes);
}

#[test]
fn variables_written_by_hand_are_enough() {
    // What programs that only imitate srun set, and TensorFlow's resolver reads.
    let places = |rank: &str, more: &[(&str, &str)]| {
        let variables = [
            ("SLURM_PROCID", rank),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_STEP_NODELIST", "t02n13,t02n41"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
        ];
        let environ = Environ::from_variables(variables.into_iter().chain(more.iter().copied()));
        let allocation =
            scheduler::allocation(&environ, On::Scheduler(&scheduler::slurm::Slurm), &RoleRequest::default())
                .unwrap();
        assert_eq!(allocation.me, rank.parse().ok());
        allocation.slots.iter().map(|slot| slot.place.map(|place| place.host)).collect::<Vec<_>>()
    };
    for rank in ["0", "1", "2", "3"] {
        assert_eq!(places(rank, &[]), [Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(places(rank, &[("SLURM_DISTRIBUTION", "cyclic")]), [Some(0), Some(1), Some(0), Some(1)]);
    }
    assert_eq!(places("2", &[("SLURMD_NODENAME", "t02n41")]), [Some(0), Some(0), Some(1), Some(1)]);
    // What is told of this task comes before what the distribution would give.
    assert_eq!(places("2", &[("SLURMD_NODENAME", "t02n13")]), [None, None, Some(0), None]);
    assert_eq!(places("2", &[("SLURM_LOCALID", "1")]), [None, None, Some(0), None]);
}
