//! The command line as it is typed, a file for each large command. What it means is worked out in `settings`.
//!
//! In every struct the options of its own come before the groups: behind a group they would stand under its heading.

mod plan;
mod run;
mod serve;
mod submit;

pub(crate) use plan::*;
pub(crate) use run::*;
pub(crate) use serve::*;
pub(crate) use submit::*;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// From a batch allocation to a running training cluster.
#[derive(Debug, Parser)]
#[command(name = "rallypoint", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:
  rallypoint run --ps 1 --workers 2 -- python train.py
      a whole cluster on this machine
  rallypoint submit slurm -N 2 --ntasks-per-node 4 --ps 1 -- python train.py
      the same as a job, once the hosts are there
  rallypoint plan --ps 1
      who would do what, here
  rallypoint plan --nodes 'n[01-04]' --tasks-per-node 4 --gpus-per-node 4
      the same for hosts that one does not have yet
  eval \"$(rallypoint env --ps 1)\"
      this member's variables, in a task of srun
  rallypoint check tf_confs/*.json
      files that would make a cluster hang
  rallypoint doctor
      what is detected, and what is missing")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// True if every decision is to be told.
    pub(crate) fn is_verbose(&self) -> bool {
        matches!(&self.command, Command::Run(args) if args.job.output.verbose)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a member, or all of them: meet, hold the ports, start, stop, end
    #[command(override_usage = "rallypoint run [OPTIONS] -- <COMMAND>...")]
    #[command(after_help = "Examples:
  rallypoint run --ps 1 --workers 2 -- python train.py
      all members on this machine
  rallypoint run --ps 1 --workers 2 --meet ~/job -- python train.py
      one of three, in three terminals
  srun rallypoint run --ps 1 -- python train.py
      one member per task
  rallypoint run --ps 1 --srun-args=--exact -- python train.py
      the same in a batch script, or under salloc
  rallypoint run --tf-config worker_0.json -- python train.py
      one member from a file
  rallypoint run --ps 2 --workers 4 --serve ps -- python train.py
      parameter servers without Python
  rallypoint run --chief --ps 2 --workers 4 --serve ps,worker -- python x.py
      only TF 2's chief is Python
  rallypoint run --workers 8 --framework torch --restart worker=3 -- python x.py
      workers that may fail and come back
  rallypoint run --restart worker=1 --rehearse kill:worker.0@30s -- python x.py
      one that is killed after 30 s, to try its checkpoint")]
    Run(Box<RunArgs>),
    /// Write a batch script that runs the job, and submit it
    #[command(subcommand)]
    Submit(Box<SubmitCommand>),
    /// Serve as a TensorFlow ps or worker, without Python
    #[command(after_help = "Examples:
  TF_CONFIG=\"$(cat ps-0.json)\" rallypoint serve
  rallypoint serve --tf-config ps-0.json --tensorflow ~/venv
  rallypoint serve --server-def ps.bin --config config.pbtxt
  rallypoint run --ps 2 --workers 4 --serve ps -- python train.py
      servers of a whole job

SIGTERM, SIGINT and SIGHUP end it at once with 0.")]
    Serve(ServeArgs),
    /// Show every member: rank, role, index, host, devices, CPUs
    #[command(after_help = "Examples:
  srun rallypoint plan --ps 1 --workers rest
      from inside a step; task 0 prints it (--json: every task)
  rallypoint plan --environ job.env --json
      for an environment captured with `env > job.env`
  rallypoint plan --nodes 'n[01-02]' --roles ps,worker*3,ps,worker*3")]
    Plan(PlanArgs),
    /// Print this member's variables for static ports; nothing is started
    #[command(after_help = "Examples:
  export TF_CONFIG=\"$(rallypoint env --format tf-config)\"
  rallypoint env --nodes 'n[01-02]' --ps 1 --workers 1 --rank 1
  rallypoint env --ps 1 --port-base 12000 --host-suffix -ib")]
    Env(EnvArgs),
    /// Check the TF_CONFIG files of one cluster against each other
    #[command(after_help = "Examples:
  rallypoint check ps.json worker_0.json worker_1.json
  rallypoint check --json tf_confs/*.json

Exit code 1 means that something is wrong.")]
    Check(CheckArgs),
    /// Tell what is detected here, from which variables, and what is missing
    #[command(after_help = "Examples:
  rallypoint doctor
  srun -N1 -n1 rallypoint doctor --json")]
    Doctor(DoctorArgs),
    /// Expand, fold and count Slurm's host lists
    #[command(subcommand)]
    Hostlist(HostlistCommand),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  eval \"$(rallypoint completions bash)\"
      in ~/.bashrc
  rallypoint completions fish > ~/.config/fish/completions/rallypoint.fish")]
    Completions { shell: Shell },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    /// TF_CONFIG files, one per member
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// What the cluster is for
    #[arg(long, value_enum, default_value_t = StrategyArg::Auto)]
    pub(crate) strategy: StrategyArg,
    /// Print JSON for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyArg {
    /// A cluster with a chief or a ps is one of parameter servers
    Auto,
    /// ParameterServerStrategy
    Ps,
    /// MultiWorkerMirroredStrategy
    Mirrored,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    /// Print JSON for scripts
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) captured: CapturedArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostlistCommand {
    /// Print every name, one per line, in Slurm's order
    #[command(after_help = "Examples:
  rallypoint hostlist expand 'rack[1-2]n[01-03]-ib'
  rallypoint hostlist expand \"$SLURM_JOB_NODELIST\" | head -1")]
    Expand {
        /// Host lists; read from standard input if there are none
        #[arg(value_name = "LIST")]
        lists: Vec<String>,
    },
    /// Print the shortest list for the given names
    #[command(after_help = "Examples:
  rallypoint hostlist fold n1 n2 n3 n10
      n[1-3,10]
  sort -R hosts.txt | rallypoint hostlist fold --keep-order")]
    Fold {
        /// Names or host lists; read from standard input if there are none
        #[arg(value_name = "NAME")]
        lists: Vec<String>,
        /// Keep the order of the names; otherwise they are sorted by name and number
        #[arg(long)]
        keep_order: bool,
    },
    /// Print how many names a list has, duplicates counted
    #[command(after_help = "Example:
  rallypoint hostlist count 'n[0001-9999]'")]
    Count {
        /// Host lists; read from standard input if there are none
        #[arg(value_name = "LIST")]
        lists: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}
