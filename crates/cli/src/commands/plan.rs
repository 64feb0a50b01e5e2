//! `rallypoint plan`

use crate::args::PlanArgs;
use crate::exit::{Exit, Failure};
use crate::printable::Shown;
use crate::settings;
use crate::table::{Align, Column, Table, digits, joined_width};
use rallypoint::devices::Device;
use rallypoint::plan::{Member, Plan};
use std::fmt::Write as _;
use std::io::{self, Write};

pub(super) fn run(args: &PlanArgs) -> Result<Exit, Failure> {
    let spec = settings::job_spec(&args.roles, &args.gpus)?;
    let (plan, _) = settings::plan(&args.source, &spec)?;
    let is_own = args.source.nodes.is_none() && args.source.captured.environ.is_none();
    // A script that wants JSON wants that of its own task.
    let once = !args.all_ranks && !args.json;
    if once && is_own && is_told_elsewhere(&plan) {
        return Ok(Exit::Success);
    }
    let mut stdout = std::io::stdout().lock();
    if args.json {
        plan.write_json(&mut stdout)?
    } else {
        write(&mut stdout, &plan)?
    }
    stdout.flush()?;
    Ok(Exit::Success)
}

/// True in a task of a Slurm step other than task 0, which shows the same: `srun` mixes what tasks write.
pub(super) fn is_told_elsewhere(plan: &Plan) -> bool {
    plan.scheduler().shares_output && plan.me().is_some_and(|rank| rank != 0)
}

/// A headline, a row per member grouped by host, and notes, for a terminal.
pub(super) fn write(out: &mut impl Write, plan: &Plan) -> io::Result<()> {
    let out = &mut Shown(out);
    write!(out, "{}\n\n", headline(plan))?;
    write_rows(out, plan)?;
    for (i, note) in plan.notes().enumerate() {
        writeln!(out, "{}note: {note}", if i == 0 { "\n" } else { "" })?;
    }
    Ok(())
}

fn headline(plan: &Plan) -> String {
    let mut out = plan.scheduler().heading.to_owned();
    if let Some(job) = plan.job() {
        _ = write!(out, " job {job}");
    }
    if plan.attempt() > 0 {
        _ = write!(out, ", attempt {}", plan.attempt());
    }
    let roles = plan
        .role_counts()
        .into_iter()
        .map(|(role, count)| {
            format!("{count} {role}{}", if count > 1 && role.as_str() != "ps" { "s" } else { "" })
        })
        .collect::<Vec<_>>()
        .join(", ");
    _ = write!(out, ": {} ({roles})", count(plan.members().len(), "member"));
    if !plan.hosts().is_empty() {
        _ = write!(out, " on {}", count(plan.hosts().len(), "host"));
    }
    if let Some(me) = plan.me().and_then(|rank| plan.member(rank)) {
        _ = write!(out, "; this is {} {}, rank {}", me.role, me.index, me.rank);
    }
    out
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Members host by host in the scheduler's order, those without a known host last.
fn write_rows(out: &mut impl Write, plan: &Plan) -> io::Result<()> {
    let mut table = Table::new(out, &columns(plan))?;
    let host = |member: &Member| member.place.map_or(u32::MAX, |place| place.host);
    let mut current = None;
    let mut row = |member: &Member| {
        if current.is_some_and(|current| current != host(member)) {
            table.gap();
        }
        current = Some(host(member));
        table.word(plan.host(member).unwrap_or("?"));
        table.number(member.rank);
        table.word(member.role.as_str());
        table.number(member.index);
        match member.devices.as_deref() {
            None => table.word("?"),
            Some([]) => table.word("-"),
            Some(devices) => table.list(devices.iter().map(Device::as_str)),
        }
        match member.cpus {
            Some(cpus) => table.number(cpus),
            None => table.word("?"),
        }
        table.word(if plan.me() == Some(member.rank) { "<- this process" } else { "" });
        table.end_row()
    };
    if plan.members().is_sorted_by_key(host) {
        plan.members().iter().try_for_each(row)?;
    } else {
        let mut members: Vec<&Member> = plan.members().iter().collect();
        members.sort_by_key(|member| host(member));
        members.into_iter().try_for_each(&mut row)?;
    }
    table.flush()
}

fn columns(plan: &Plan) -> [Column<'static>; 7] {
    let devices = |member: &Member| match member.devices.as_deref() {
        Some(devices) => joined_width(devices.iter().map(Device::as_str)),
        None => 1,
    };
    let role_counts = plan.role_counts();
    let widest = |widths: &mut dyn Iterator<Item = usize>| widths.max().unwrap_or(0);
    [
        ("HOST", Align::Left, widest(&mut plan.hosts().iter().map(|host| host.name.len()))),
        ("RANK", Align::Right, digits(plan.world().saturating_sub(1))),
        ("ROLE", Align::Left, widest(&mut role_counts.iter().map(|(role, _)| role.as_str().len()))),
        ("INDEX", Align::Right, widest(&mut role_counts.iter().map(|(_, count)| digits(count - 1)))),
        ("DEVICES", Align::Left, widest(&mut plan.members().iter().map(devices))),
        (
            "CPUS",
            Align::Right,
            widest(&mut plan.members().iter().filter_map(|member| member.cpus).map(digits)),
        ),
        ("", Align::Left, 0),
    ]
}
