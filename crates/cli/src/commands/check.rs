//! `rallypoint check`

use super::{print, print_json};
use crate::args::{CheckArgs, StrategyArg};
use crate::exit::{Exit, Failure};
use crate::printable::printable;
use rallypoint::check::{ConfigFile, Finding, Strategy, check};
use rallypoint::hint::{Hint, Hinted};
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, Error)]
#[error("cannot read {}: {source}", file.display())]
struct Unreadable {
    file: PathBuf,
    source: std::io::Error,
}

impl Hinted for Unreadable {
    fn hint(&self) -> Option<Hint> {
        None
    }
}

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    files: usize,
    /// That the files list; with fewer files nothing is said about the others' ones.
    members: usize,
    findings: &'a [Finding],
}

pub(super) fn run(args: &CheckArgs) -> Result<Exit, Failure> {
    let strategy = match args.strategy {
        StrategyArg::Auto => Strategy::Auto,
        StrategyArg::Ps => Strategy::ParameterServer,
        StrategyArg::Mirrored => Strategy::MultiWorkerMirrored,
    };
    let files = args.files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let findings = check(&files, strategy);
    let members = files.iter().map(listed).max().unwrap_or(0);
    if args.json {
        print_json(&Report { ok: findings.is_empty(), files: files.len(), members, findings: &findings })?;
    } else {
        print(render(files.len(), members, &findings).as_bytes())?;
    }
    Ok(if findings.is_empty() { Exit::Success } else { Exit::Findings })
}

fn read(file: &PathBuf) -> Result<ConfigFile, Failure> {
    let text = std::fs::read_to_string(file).map_err(|source| Unreadable { file: file.clone(), source })?;
    Ok(ConfigFile::parse(&file.display().to_string(), &text)?)
}

/// Members that a file's cluster has; its own, if it is an evaluator, stands in none.
fn listed(file: &ConfigFile) -> usize {
    let listed: usize = file.cluster.values().map(|addresses| addresses.iter().flatten().count()).sum();
    listed + usize::from(!file.cluster.contains_key(&file.role))
}

fn render(files: usize, members: usize, findings: &[Finding]) -> String {
    let mut out = String::new();
    let mut current = None;
    for finding in findings {
        if current != Some(&finding.file) {
            _ = writeln!(out, "{}", printable(&finding.file));
            current = Some(&finding.file);
        }
        _ = writeln!(out, "  wrong: {}\n  fix:   {}", printable(&finding.problem), printable(&finding.fix));
    }
    let alone = files == 1 && members > 1;
    let files = match alone {
        true => format!("1 file of {members}"),
        false => format!("{files} file{}", if files == 1 { "" } else { "s" }),
    };
    match findings.len() {
        0 => out.push_str(&format!("{files}: nothing wrong\n")),
        1 => out.push_str(&format!("{files}: 1 problem\n")),
        n => out.push_str(&format!("{files}: {n} problems\n")),
    }
    if alone {
        out.push_str("The others were not seen: give the files of all members to have them compared.\n");
    }
    out
}
