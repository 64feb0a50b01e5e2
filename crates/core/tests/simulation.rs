//! Whole jobs in a room of simulated machines: `make simulate` plays some hundreds of seeds, `make soak SEEDS=10000` more,
//! `make soak SEED=7` shows one. `docs/design/simulation.md` tells what happens there.

#![expect(clippy::print_stdout, reason = "a soak says how it goes")]

use rallypoint::simulation::{Report, Scenario, play_twice};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds that are always played.
const SEEDS: u64 = 400;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// What is wrong with a seed, and how to see it again.
fn complaint(seed: u64, report: &Report) -> String {
    let broken = report.broken.join("\n  ");
    format!("seed {seed}:\n  {broken}\nonce more, with all that happens: make soak SEED={seed}\n")
}

#[test]
fn a_job_without_misfortune() {
    for seed in 0..50 {
        let report = play_twice(&Scenario::calm(seed));
        assert!(report.broken.is_empty(), "calm {}", complaint(seed, &report));
    }
}

/// What seeds have once found.
#[test]
fn what_was_found_before() {
    let kept = include_str!("simulation/kept.txt").lines().filter(|line| line.starts_with('{'));
    for line in kept {
        let scenario = Scenario::from_json(line).expect("a scenario");
        let report = play_twice(&scenario);
        let broken = report.broken.join("\n  ");
        assert!(report.broken.is_empty(), "kept {line}:\n  {broken}\n{}", report.log.join("\n"));
    }
}

/// One seed, or some hundreds, or as many as are asked for.
#[test]
fn whatever_goes_wrong() {
    if let Some(seed) = number("SEED") {
        let scenario = Scenario::draw(seed);
        let report = play_twice(&scenario);
        println!("{}\n{}", scenario.to_json(), report.log.join("\n"));
        assert!(report.broken.is_empty(), "{}", complaint(seed, &report));
        return;
    }
    let (first, count) = (number("FIRST").unwrap_or(0), number("SEEDS").unwrap_or(SEEDS));
    let (next, failed) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let enough = number("ONE").is_some() && !failed.lock().expect("nobody panics").is_empty();
                    if seed >= first + count || enough {
                        return;
                    }
                    let report = play_twice(&Scenario::draw(seed));
                    if !report.broken.is_empty() {
                        let complaint = complaint(seed, &report);
                        println!("{complaint}");
                        failed.lock().expect("nobody panics").push((seed, complaint));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().expect("nobody panics");
    failed.sort();
    let all: String = failed.iter().map(|(_, complaint)| complaint.as_str()).collect();
    assert!(failed.is_empty(), "{} of {count} seeds:\n{all}", failed.len());
    println!("{count} seeds, from {first} on: all holds");
}
