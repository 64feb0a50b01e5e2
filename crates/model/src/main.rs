//! Checks all cases, or those whose name contains a word, and prints a table: `rallypoint-model [WORD] [--steps]`.
#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use rallypoint_model::{Expect, cases};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let with_steps = words.iter().any(|word| word == "--steps");
    let wanted = words.iter().find(|word| !word.starts_with("--"));
    let mut all_well = true;
    println!("| case | expected | states | depth | seconds | found |");
    println!("|---|---|---:|---:|---:|---|");
    for case in cases() {
        if wanted.is_some_and(|word| !case.name.contains(word.as_str())) {
            continue;
        }
        let checked = case.check();
        let expected = match case.expect {
            Expect::Holds => "holds",
            Expect::Recovers => "recovers",
            Expect::Breaks(_) => "breaks",
            Expect::Known(_) => "known",
        };
        let found = match &checked.broken {
            None if checked.recovers => "all properties hold; a job can recover".to_owned(),
            None => "all properties hold".to_owned(),
            Some((name, steps)) => format!("\"{name}\" breaks after {} steps", steps.len()),
        };
        let is_well = checked.is(case.expect);
        all_well &= is_well;
        let mark = if is_well { "" } else { " (NOT EXPECTED)" };
        println!(
            "| {} | {expected} | {} | {} | {:.1} | {found}{mark} |",
            case.name,
            checked.states,
            checked.depth,
            checked.took.as_secs_f64()
        );
        if let (true, Some((_, steps))) = (with_steps, &checked.broken) {
            steps.iter().enumerate().for_each(|(at, step)| println!("    {}. {step}", at + 1));
        }
    }
    if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
