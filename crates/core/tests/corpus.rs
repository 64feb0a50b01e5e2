//! The inputs that the fuzzers keep, and those that once broke something: all of them hold.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use rallypoint::fuzzing::TARGETS;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Far more than any of them needs: an input that takes longer shows that its reader does.
const LONGEST: Duration = Duration::from_secs(5);

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_input_holds() {
    let mut broken = Vec::new();
    for (target, run) in TARGETS {
        let folder = fuzz().join("corpus").join(target);
        let inputs = names(&folder);
        assert!(!inputs.is_empty(), "{target} has no inputs");
        for name in inputs {
            let data = std::fs::read(folder.join(&name)).unwrap();
            let started = Instant::now();
            let held = catch_unwind(AssertUnwindSafe(|| run(&data))).is_ok();
            if !held || started.elapsed() > LONGEST {
                broken.push(format!("{target}/{name}"));
            }
        }
    }
    assert!(broken.is_empty(), "these do not hold: {}", broken.join(", "));
}

/// No input at all, a single byte and rubbish, which a corpus need not keep.
#[test]
fn the_smallest_inputs_hold() {
    for (_, run) in TARGETS {
        run(&[]);
        (0..=255).for_each(|byte| run(&[byte]));
        run(&[0xff; 300]);
    }
}

/// Every byte of three frames changed, every frame repeated, dropped, exchanged and sent back, in both directions.
#[test]
fn every_single_change_on_the_way_is_noticed() {
    for (direction, what, frame, place) in (0..2u8)
        .flat_map(|direction| (0..8u8).map(move |what| (direction, what)))
        .flat_map(|(direction, what)| (0..3u8).map(move |frame| (direction, what, frame)))
        .flat_map(|(direction, what, frame)| {
            (0..=255u8).step_by(3).map(move |place| (direction, what, frame, place))
        })
    {
        rallypoint::fuzzing::frames(&[direction, frame << 3 | what, place, 1]);
    }
}

/// A target without a program is never fuzzed, and one without a corpus never replayed.
#[test]
fn every_target_has_its_program_and_its_corpus() {
    let mut expected: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    // It reads a file of the command, whose own tests replay it.
    expected.insert("rallypoint_toml".to_owned());
    assert_eq!(names(&fuzz().join("corpus")), expected);
    let programs = names(&fuzz().join("fuzz_targets"));
    assert_eq!(
        programs.iter().map(|file| file.trim_end_matches(".rs").to_owned()).collect::<BTreeSet<_>>(),
        expected
    );
}
