//! `rallypoint run`: a job's roles, meeting, ports, ending and output.

use super::{AddressArgs, GpuArgs, RoleArgs, framework, on};
use clap::{Args as ClapArgs, ValueEnum};
use rallypoint::duration;
use rallypoint::framework::{FRAMEWORKS, Framework};
use rallypoint::hint;
use rallypoint::rehearsal::Rehearsal;
use rallypoint::scheduler::{self, On};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    /// The scheduler to believe in
    #[arg(long, default_value = "auto", value_parser = on())]
    pub(crate) on: On,
    /// A task that a launcher has started: its leader is told on standard input
    #[arg(long, hide = true)]
    pub(crate) launched: bool,
    /// Run the one member that this TF_CONFIG file is for
    #[arg(long, value_name = "FILE", conflicts_with_all = ["meet", "rank", "roles", "ps", "workers", "chief", "evaluator"])]
    pub(crate) tf_config: Option<PathBuf>,
    /// Show the plan and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The program and its arguments
    #[arg(last = true, required_unless_present = "dry_run", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) gpus: GpuArgs,
}

/// What a job is, wherever it runs: `submit` takes these too, and hands them on to `run`.
#[derive(Debug, ClapArgs)]
pub(crate) struct JobArgs {
    /// Whose variables the members get
    #[arg(long, default_value = FRAMEWORKS[0].name(), value_parser = framework())]
    pub(crate) framework: &'static dyn Framework,
    /// Turn each member's CPUs into thread settings
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) threads: Switch,
    /// In a batch script or under salloc: more options for the srun that is started
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) srun_args: Vec<String>,
    #[command(flatten)]
    pub(crate) roles: RoleArgs,
    #[command(flatten)]
    pub(crate) meet: MeetArgs,
    #[command(flatten)]
    pub(crate) ports: PortArgs,
    #[command(flatten)]
    pub(crate) addresses: AddressArgs,
    #[command(flatten)]
    pub(crate) ending: EndingArgs,
    #[command(flatten)]
    pub(crate) rehearse: RehearseArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) serve: RunServeArgs,
}

/// How members of several agents find each other.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Meeting")]
pub(crate) struct MeetArgs {
    #[arg(long, value_name = "WAY", help = ways())]
    pub(crate) meet: Option<String>,
    /// This member's rank [default: the scheduler's, or the next free one]
    #[arg(long, value_name = "N", requires = "meet")]
    pub(crate) rank: Option<u32>,
    /// How long to wait for all members
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = duration::parse)]
    pub(crate) meet_timeout: Duration,
    /// Where the leader listens: an address, a network (10.1.0.0/16) or an interface of its machine [default: everywhere]
    #[arg(long, value_name = "WHERE")]
    pub(crate) listen: Option<String>,
    /// A name for this job, where several meet in one directory [default: the scheduler's job id]
    #[arg(long, value_name = "NAME", requires = "meet")]
    pub(crate) job: Option<String>,
}

/// Where members listen.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Ports")]
pub(crate) struct PortArgs {
    /// First port of a host; each member there takes the next [default: the step's reserved ports, else any free one]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), conflicts_with = "port_range")]
    pub(crate) port_base: Option<u16>,
    /// Free ports of this range only: 20000-20999
    #[arg(long, value_name = "LO-HI", value_parser = port_range)]
    pub(crate) port_range: Option<(u16, u16)>,
    /// How a held port becomes the member's
    #[arg(long, value_enum, default_value_t = HandOverArg::ReuseAddr)]
    pub(crate) hand_over: HandOverArg,
}

/// When and how the job ends.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Ending")]
pub(crate) struct EndingArgs {
    /// Whose end is the job's end
    #[arg(long, value_enum, default_value_t = UntilArg::Auto)]
    pub(crate) until: UntilArg,
    /// Let a failed member of a role come back so often: worker=3
    #[arg(long, value_name = "ROLE=N", value_parser = restart)]
    pub(crate) restart: Vec<(String, u32)>,
    /// Let the others go on when a member of a role fails
    #[arg(long, value_name = "ROLE")]
    pub(crate) tolerate: Vec<String>,
    /// Requeue the whole job when a member ends with this code; 42 if none is given (Slurm, batch jobs)
    #[arg(long, value_name = "CODE", num_args = 0..=1, default_missing_value = "42", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) requeue_on: Option<u8>,
    /// Time between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration::parse)]
    pub(crate) grace: Duration,
}

/// Faults on purpose.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Rehearsal")]
pub(crate) struct RehearseArgs {
    /// Do this to members on purpose: kill, term, warn, stop or lose, as in kill:worker.1@30s,stop:ps.0@1min+20s; the
    /// time counts from the member's first start
    #[arg(long, value_name = "FAULTS", value_parser = rehearsal)]
    pub(crate) rehearse: Vec<Rehearsal>,
}

/// Members that need no Python.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Servers")]
pub(crate) struct RunServeArgs {
    /// Roles that are TensorFlow servers without Python, instead of COMMAND: ps, or ps,worker with a chief
    #[arg(long, value_name = "ROLES")]
    pub(crate) serve: Option<String>,
    /// Where the servers' TensorFlow is [default: that of COMMAND's Python, else look for it]
    #[arg(long, value_name = "DIR")]
    pub(crate) tensorflow: Option<PathBuf>,
    /// Their tensorflow.ConfigProto, as text or serialized
    #[arg(long, value_name = "FILE", requires = "serve")]
    pub(crate) serve_config: Option<PathBuf>,
    /// Jobs with ps: let a server keep the address of a worker that is done, for those who still open sessions
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) stand_in: Switch,
}

/// What members write, and what is told about them.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Write each member's output to DIR/attempt-0/worker-1.out and .err
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,
    /// With --log-dir, show the output here too
    #[arg(long, requires = "log_dir")]
    pub(crate) tee: bool,
    /// Show neither the members' output nor talk; errors only
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Tell every decision and its reason, as RALLYPOINT_LOG=debug does
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// What stands before each line; {role}, {index}, {rank} and {host} are filled in
    #[arg(long, value_name = "TEXT", default_value = "[{role} {index}] ")]
    pub(crate) prefix: String,
    /// Append what happens to this file, a JSON object per line
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
    /// What follows from output, log files or events that cannot be written
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = LogErrorsArg::Fail)]
    pub(crate) log_errors: LogErrorsArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogErrorsArg {
    /// A job that has otherwise succeeded ends with 199
    Fail,
    /// It is said, and no more
    Ignore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UntilArg {
    /// The chief where there are a chief and ps, else all chiefs and workers
    Auto,
    Chief,
    Workers,
    All,
    /// The chief, else worker 0
    First,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HandOverArg {
    /// The member binds beside the holder: any server that sets SO_REUSEADDR
    ReuseAddr,
    /// The same by SO_REUSEPORT, with TF_GRPC_REUSE_PORT=1
    ReusePort,
    /// The holder lets go just before the member starts
    Release,
}

/// What `--meet` takes.
fn ways() -> String {
    let own: Vec<&str> = scheduler::ways().collect();
    format!("auto, {}, a directory that all members see, or host:port [default: auto]", own.join(", "))
}

/// Checked where it is typed: a batch job would find out hours later.
fn rehearsal(text: &str) -> Result<Rehearsal, String> {
    text.parse().map_err(|error| hint::in_full(&error))
}

fn port_range(text: &str) -> Result<(u16, u16), String> {
    let bad = || "expected two ports such as 20000-20999".to_owned();
    let (lo, hi) = text.split_once('-').ok_or_else(bad)?;
    let (lo, hi) = (lo.trim().parse().map_err(|_| bad())?, hi.trim().parse().map_err(|_| bad())?);
    if lo == 0 || hi < lo { Err(bad()) } else { Ok((lo, hi)) }
}

fn restart(text: &str) -> Result<(String, u32), String> {
    let (role, count) = text.split_once('=').ok_or("expected a role and a number such as worker=3")?;
    let count = count.parse().map_err(|_| "expected a role and a number such as worker=3")?;
    Ok((role.to_owned(), count))
}
