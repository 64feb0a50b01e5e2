//! `rallypoint submit`: what is asked of a scheduler.

use super::JobArgs;
use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use std::ffi::OsString;

#[derive(Debug, Subcommand)]
pub(crate) enum SubmitCommand {
    /// Through sbatch; its job id goes to stdout
    #[command(after_help = "Examples:
  rallypoint submit slurm -N 2 --ntasks-per-node 4 --gpus-per-node 4 --time 1:00:00 --ps 1 --env tf -- python train.py
  rallypoint submit slurm -n 4 --ps 1 --sbatch=\"--qos=shared --mail-type=END\" --dry-run -- python train.py
  rallypoint submit slurm -n 4 --time 10 --wait -- python train.py

Options of run are handed on to it. Environments and defaults may stand in rallypoint.toml.")]
    Slurm(Box<SubmitSlurmArgs>),
    /// Through condor_submit; its cluster id goes to stdout
    #[command(after_help = "Examples:
  rallypoint submit htcondor --ps 1 --workers 2 --request-gpus 1 -- python train.py
  rallypoint submit htcondor --workers 4 --no-shared-fs --input data.npz --wait -- python train.py
  rallypoint submit htcondor --universe parallel --ps 1 --workers 2 --dry-run -- python train.py

Options of run are handed on to it. Environments and defaults may stand in rallypoint.toml.")]
    Htcondor(Box<SubmitHtcondorArgs>),
}

/// What every kind of submission has.
#[derive(Debug, ClapArgs)]
pub(crate) struct SubmitJobArgs {
    /// Set up this environment first: [env.NAME] of rallypoint.toml
    #[arg(long, value_name = "NAME")]
    pub(crate) env: Option<String>,
    /// Print the script and submit nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Stay and tell the job's state and output; end with its exit code
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) wait: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) handed_on: JobArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SubmitSlurmArgs {
    #[command(flatten)]
    pub(crate) job: SubmitJobArgs,
    #[command(flatten)]
    pub(crate) resources: SlurmResources,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SubmitHtcondorArgs {
    #[command(flatten)]
    pub(crate) job: SubmitJobArgs,
    #[command(flatten)]
    pub(crate) resources: HtcondorResources,
}

/// What is asked of HTCondor; names and values are those of a submit description.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Resources")]
pub(crate) struct HtcondorResources {
    /// One proc a member, or one node of a dedicated scheduler
    #[arg(long, value_enum, default_value_t = UniverseArg::Vanilla)]
    pub(crate) universe: UniverseArg,
    /// CPUs of each member
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) request_cpus: Option<u32>,
    /// GPUs of each member; in the vanilla universe a parameter server gets none
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) request_gpus: Option<u32>,
    /// Memory of each member: 8GB
    #[arg(long, value_name = "SIZE")]
    pub(crate) request_memory: Option<String>,
    /// Disk of each member: 20GB
    #[arg(long, value_name = "SIZE")]
    pub(crate) request_disk: Option<String>,
    /// Which hosts will do: 'Machine != \"n7\"'
    #[arg(long, value_name = "EXPRESSION")]
    pub(crate) requirements: Option<String>,
    /// The job's name, and its files' [default: the script's]
    #[arg(long, value_name = "NAME")]
    pub(crate) batch_name: Option<String>,
    /// A folder for output and logs [default: this one]
    #[arg(long, value_name = "DIR")]
    pub(crate) logs: Option<String>,
    /// The execute hosts do not see this directory: rallypoint and the script go with the job
    #[arg(long)]
    pub(crate) no_shared_fs: bool,
    /// With --no-shared-fs, another file that goes with the job
    #[arg(long, value_name = "FILE", requires = "no_shared_fs")]
    pub(crate) input: Vec<String>,
    /// How often all are started again if one was evicted or lost; in the vanilla universe
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) retries: u32,
    /// Start all again if the program itself has failed, too
    #[arg(long)]
    pub(crate) retry_failures: bool,
    /// More lines of the submit description: 'accounting_group = physics'
    #[arg(long, value_name = "LINE")]
    pub(crate) line: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UniverseArg {
    Vanilla,
    Parallel,
}

/// What is asked of Slurm; names and values are sbatch's.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Resources")]
pub(crate) struct SlurmResources {
    /// Hosts: a number, or 2-4
    #[arg(short = 'N', long, value_name = "N")]
    pub(crate) nodes: Option<String>,
    /// Tasks, one a member
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ntasks: Option<u32>,
    /// Tasks on each host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) ntasks_per_node: Option<u32>,
    /// CPUs of each task
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus_per_task: Option<u32>,
    /// GPUs of each host: 4, or a100:4
    #[arg(long, value_name = "N")]
    pub(crate) gpus_per_node: Option<String>,
    /// GPUs of each task
    #[arg(long, value_name = "N")]
    pub(crate) gpus_per_task: Option<String>,
    /// Memory of each host: 64G
    #[arg(long, value_name = "SIZE")]
    pub(crate) mem: Option<String>,
    /// Time limit: minutes, 1:00:00 or 2-00:00
    #[arg(short = 't', long, value_name = "TIME")]
    pub(crate) time: Option<String>,
    #[arg(short = 'p', long, value_name = "NAME", help = "Partition")]
    pub(crate) partition: Option<String>,
    #[arg(short = 'A', long, value_name = "NAME", help = "Account")]
    pub(crate) account: Option<String>,
    /// The job's name [default: the script's]
    #[arg(short = 'J', long, value_name = "NAME")]
    pub(crate) job_name: Option<String>,
    /// Where the job's output goes: logs/%j.out
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub(crate) output_file: Option<String>,
    /// More options of sbatch: --sbatch="--qos=shared --exclusive"
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) sbatch: Vec<String>,
}
