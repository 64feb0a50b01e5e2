//! `rallypoint check`

use super::{print, print_json};
use crate::args::{CheckArgs, StrategyArg};
use crate::exit::{Exit, Failure};
use rallypoint::check::{ConfigFile, Finding, Strategy, check};
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

#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    files: usize,
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
    if args.json {
        print_json(&Report { ok: findings.is_empty(), files: files.len(), findings: &findings })?;
    } else {
        print(render(files.len(), &findings).as_bytes())?;
    }
    Ok(if findings.is_empty() { Exit::Success } else { Exit::Findings })
}

fn read(file: &PathBuf) -> Result<ConfigFile, Failure> {
    let text = std::fs::read_to_string(file).map_err(|source| Unreadable { file: file.clone(), source })?;
    Ok(ConfigFile::parse(&file.display().to_string(), &text)?)
}

fn render(files: usize, findings: &[Finding]) -> String {
    let mut out = String::new();
    let mut current = None;
    for finding in findings {
        if current != Some(&finding.file) {
            _ = writeln!(out, "{}", finding.file);
            current = Some(&finding.file);
        }
        _ = writeln!(out, "  wrong: {}\n  fix:   {}", finding.problem, finding.fix);
    }
    let files = format!("{files} file{}", if files == 1 { "" } else { "s" });
    match findings.len() {
        0 => out.push_str(&format!("{files}: nothing wrong\n")),
        1 => out.push_str(&format!("{files}: 1 problem\n")),
        n => out.push_str(&format!("{files}: {n} problems\n")),
    }
    out
}
