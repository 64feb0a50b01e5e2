//! The command line as it is typed. What it means is worked out in `settings`.

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// From a batch allocation to a running training cluster.
#[derive(Debug, Parser)]
#[command(name = "rallypoint", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:
  rallypoint run --ps 1 --workers 2 -- python train.py        a whole cluster on this machine
  rallypoint submit slurm -N 2 --ntasks-per-node 4 --ps 1 -- python train.py
  rallypoint plan --ps 1                          who would do what, here
  rallypoint plan --nodes 'n[01-04]' --tasks-per-node 4 --gpus-per-node 4
  eval \"$(rallypoint env --ps 1)\"                 this member's variables, in a task of srun
  rallypoint check tf_confs/*.json                files that would make a cluster hang
  rallypoint doctor                               what is detected, and what is missing")]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a member, or all of them: meet, hold the ports, start, stop, end
    #[command(after_help = "Examples:
  rallypoint run --ps 1 --workers 2 -- python train.py            all members on this machine
  rallypoint run --ps 1 --workers 2 --meet ~/job -- python train.py   one of three, in three terminals
  srun rallypoint run --ps 1 -- python train.py                   one member a task
  rallypoint run --ps 1 --srun-args=--exact -- python train.py    the same in a batch script, or under salloc
  rallypoint run --tf-config worker_0.json -- python train.py     one member from a file
  rallypoint run --ps 2 --workers 4 --serve ps -- python train.py     parameter servers without Python
  rallypoint run --chief --ps 2 --workers 4 --serve ps,worker -- python train.py   only TF 2's chief is Python
  rallypoint run --workers 8 --framework torch --restart worker=3 -- python train.py")]
    Run(Box<RunArgs>),
    /// Write a batch script that runs the job, and submit it
    #[command(subcommand)]
    Submit(SubmitCommand),
    /// Serve as a TensorFlow ps or worker, without Python
    #[command(after_help = "Examples:
  TF_CONFIG=\"$(cat ps-0.json)\" rallypoint serve
  rallypoint serve --tf-config ps-0.json --tensorflow ~/venv --intra-op-threads 4
  rallypoint serve --server-def ps.bin --config config.pbtxt
  rallypoint run --ps 2 --workers 4 --serve ps -- python train.py     servers of a whole job

SIGTERM, SIGINT and SIGHUP end it at once with 0.")]
    Serve(ServeArgs),
    /// Show every member: rank, role, index, host, devices, CPUs
    #[command(after_help = "Examples:
  srun rallypoint plan --ps 1 --workers rest      from inside a step
  rallypoint plan --environ job.env --json        for an environment captured with `env > job.env`
  rallypoint plan --nodes 'n[01-02]' --roles ps,worker*3,ps,worker*3 --tasks-per-node 4")]
    Plan(PlanArgs),
    /// Print this member's variables for static ports; nothing is started
    #[command(after_help = "Examples:
  export TF_CONFIG=\"$(rallypoint env --format tf-config)\"
  rallypoint env --nodes 'n[01-02]' --ps 1 --workers 1 --rank 1 --format json
  rallypoint env --ps 1 --port-base 12000 --host-suffix -ib")]
    Env(EnvArgs),
    /// Check the TF_CONFIG files of one cluster against each other
    #[command(after_help = "Examples:
  rallypoint check tf_confs/ps.json tf_confs/worker_0.json tf_confs/worker_1.json
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
    #[command(after_help = "Example:
  rallypoint completions bash > ~/.local/share/bash-completion/completions/rallypoint")]
    Completions { shell: Shell },
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) roles: RoleArgs,
    #[command(flatten)]
    pub(crate) gpus: GpuArgs,
    /// The scheduler to believe in
    #[arg(long, value_enum, default_value_t = OnArg::Auto)]
    pub(crate) on: OnArg,
    #[command(flatten)]
    pub(crate) meet: MeetArgs,
    #[command(flatten)]
    pub(crate) ports: PortArgs,
    #[command(flatten)]
    pub(crate) addresses: AddressArgs,
    #[command(flatten)]
    pub(crate) ending: EndingArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) serve: RunServeArgs,
    /// Whose variables the members get
    #[arg(long, value_enum, default_value_t = FrameworkArg::Tensorflow)]
    pub(crate) framework: FrameworkArg,
    /// Turn each member's CPUs into thread settings
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) threads: Switch,
    /// In a batch script or under salloc: more options for the srun that is started
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) srun_args: Vec<String>,
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
}

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
    #[command(flatten)]
    pub(crate) handed_on: HandedOnArgs,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Options of `run` that `submit` hands on to it.
#[derive(Debug, ClapArgs)]
pub(crate) struct HandedOnArgs {
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
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) serve: RunServeArgs,
    /// Whose variables the members get
    #[arg(long, value_enum, default_value_t = FrameworkArg::Tensorflow)]
    pub(crate) framework: FrameworkArg,
    /// Turn each member's CPUs into thread settings
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) threads: Switch,
    /// More options for the srun that the job starts
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    pub(crate) srun_args: Vec<String>,
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

/// How members of several agents find each other.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Meeting")]
pub(crate) struct MeetArgs {
    /// auto, pmi, chirp, a directory that all members see, or host:port [default: auto]
    #[arg(long, value_name = "WAY")]
    pub(crate) meet: Option<String>,
    /// This member's rank [default: the scheduler's, or the next free one]
    #[arg(long, value_name = "N", requires = "meet")]
    pub(crate) rank: Option<u32>,
    /// How long to wait for all members
    #[arg(long, value_name = "TIME", default_value = "10min", value_parser = duration)]
    pub(crate) meet_timeout: Duration,
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
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) grace: Duration,
}

/// Members that need no Python.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Servers")]
pub(crate) struct RunServeArgs {
    /// Roles that are TensorFlow servers without Python, instead of COMMAND: ps, or ps,worker with a chief
    #[arg(long, value_name = "ROLES")]
    pub(crate) serve: Option<String>,
    /// Where their TensorFlow is [default: that of COMMAND's Python, else look for it]
    #[arg(long, value_name = "DIR", requires = "serve")]
    pub(crate) tensorflow: Option<PathBuf>,
    /// Their tensorflow.ConfigProto, as text or serialized
    #[arg(long, value_name = "FILE", requires = "serve")]
    pub(crate) serve_config: Option<PathBuf>,
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
    /// What stands before each line; {role}, {index}, {rank} and {host} are filled in
    #[arg(long, value_name = "TEXT", default_value = "[{role} {index}] ")]
    pub(crate) prefix: String,
    /// Append what happens to this file, a JSON object a line
    #[arg(long, value_name = "FILE")]
    pub(crate) events: Option<PathBuf>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ServeArgs {
    /// A file with TF_CONFIG [default: the variable]
    #[arg(long, value_name = "FILE")]
    pub(crate) tf_config: Option<PathBuf>,
    /// A file with a serialized tensorflow.ServerDef instead
    #[arg(long, value_name = "FILE", conflicts_with = "tf_config")]
    pub(crate) server_def: Option<PathBuf>,
    /// Where TensorFlow is: its package, an environment, or a folder of libraries [default: look for it]
    #[arg(long, value_name = "DIR")]
    pub(crate) tensorflow: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) options: ServerArgs,
    /// Say what would be served, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// When it serves, print a JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the server is like.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// Threads within an op [default: TF_NUM_INTRAOP_THREADS, else all CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub(crate) intra_op_threads: Option<u32>,
    /// Ops at a time, at least 2 [default: TF_NUM_INTEROP_THREADS, else all CPUs]
    #[arg(long, value_name = "N", value_parser = inter_op_threads)]
    pub(crate) inter_op_threads: Option<u32>,
    /// Take GPU memory as it is needed, not all at once
    #[arg(long)]
    pub(crate) memory_growth: bool,
    /// Let its sessions see these devices only: /job:ps; may be repeated
    #[arg(long, value_name = "FILTER")]
    pub(crate) device_filter: Vec<String>,
    /// A tensorflow.ConfigProto, as text or serialized; options above win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The largest message it takes from other members [default: 2147483647]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=2147483647))]
    pub(crate) grpc_max_message_length: Option<u32>,
    /// An option of gRPC for connections to other members: grpc.keepalive_time_ms=30000; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) grpc_option: Vec<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) roles: RoleArgs,
    #[command(flatten)]
    pub(crate) gpus: GpuArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Print JSON for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct EnvArgs {
    #[command(flatten)]
    pub(crate) roles: RoleArgs,
    #[command(flatten)]
    pub(crate) gpus: GpuArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) addresses: AddressArgs,
    /// How to print the variables
    #[arg(long, value_enum, default_value_t = EnvFormat::Shell)]
    pub(crate) format: EnvFormat,
    /// The member, where the environment does not tell which one this is
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,
    /// Whose variables to print
    #[arg(long, value_enum, default_value_t = FrameworkArg::Tensorflow)]
    pub(crate) framework: FrameworkArg,
    /// Write a TF_CONFIG file for every member into this directory instead
    #[arg(long, value_name = "DIR", conflicts_with_all = ["rank", "format"])]
    pub(crate) write_dir: Option<PathBuf>,
    /// First port of a host; each member there takes the next [default: SLURM_STEP_RESV_PORTS, else 8888]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port_base: Option<u16>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    /// TF_CONFIG files, one a member
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// What the cluster is for
    #[arg(long, value_enum, default_value_t = StrategyArg::Auto)]
    pub(crate) strategy: StrategyArg,
    /// Print JSON for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) captured: CapturedArgs,
    /// Print JSON for scripts
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostlistCommand {
    /// Print every name, one a line, in Slurm's order
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
  rallypoint hostlist fold n1 n2 n3 n10           n[1-3,10]
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

/// Who is who.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Roles")]
pub(crate) struct RoleArgs {
    /// Parameter servers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) ps: u32,
    /// Workers: a number, or `rest` for all ranks without another role [default: rest]
    #[arg(long, value_name = "N|rest")]
    pub(crate) workers: Option<String>,
    /// One member is the chief (TF 2's coordinator)
    #[arg(long)]
    pub(crate) chief: bool,
    /// One member is an evaluator
    #[arg(long)]
    pub(crate) evaluator: bool,
    /// One role a rank, in rank order: ps,worker*3,ps,worker*3
    #[arg(long, value_name = "LIST", conflicts_with_all = ["ps", "workers", "chief", "evaluator", "place"])]
    pub(crate) roles: Option<String>,
    /// Parameter servers on the first ranks, or on different hosts
    #[arg(long, value_enum, default_value_t = PlaceArg::Pack)]
    pub(crate) place: PlaceArg,
}

/// Who gets which GPU.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Devices")]
pub(crate) struct GpuArgs {
    /// GPUs of each host, instead of what was detected
    #[arg(long, value_name = "N")]
    pub(crate) gpus_per_node: Option<u32>,
    /// GPUs of each member that is not a ps [default: a host's GPUs over its members]
    #[arg(long, value_name = "N")]
    pub(crate) gpus_per_task: Option<u32>,
    /// GPUs of each parameter server
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) ps_gpus: u32,
    /// Let every member see all GPUs of its host
    #[arg(long)]
    pub(crate) no_gpu_binding: bool,
    /// CPUs of each member, instead of what was detected
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cpus_per_task: Option<u32>,
}

/// Where the allocation comes from.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Allocation")]
pub(crate) struct SourceArgs {
    /// The scheduler to believe in
    #[arg(long, value_enum, default_value_t = OnArg::Auto)]
    pub(crate) on: OnArg,
    #[command(flatten)]
    pub(crate) captured: CapturedArgs,
    /// Plan for these hosts, a host list, instead of an allocation
    #[arg(long, value_name = "HOSTLIST", conflicts_with_all = ["environ", "on"])]
    pub(crate) nodes: Option<String>,
    /// Members on each host of --nodes [default: as many as the roles need]
    #[arg(long, value_name = "N", requires = "nodes")]
    pub(crate) tasks_per_node: Option<u32>,
}

/// A captured environment.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Allocation")]
pub(crate) struct CapturedArgs {
    /// Read the variables from a file of KEY=VALUE lines
    #[arg(long, value_name = "FILE")]
    pub(crate) environ: Option<PathBuf>,
    /// HTCondor's job ad for --environ, found beside it or as given
    #[arg(long, value_name = "FILE", requires = "environ")]
    pub(crate) job_ad: Option<PathBuf>,
    /// HTCondor's machine ad for --environ
    #[arg(long, value_name = "FILE", requires = "environ")]
    pub(crate) machine_ad: Option<PathBuf>,
}

/// Which address of a host the others use.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Addresses")]
pub(crate) struct AddressArgs {
    /// The address of this interface of this machine
    #[arg(long, value_name = "NAME", group = "address")]
    pub(crate) interface: Option<String>,
    /// This machine's address in this network, such as 10.1.0.0/16
    #[arg(long, value_name = "CIDR", group = "address")]
    pub(crate) network: Option<String>,
    /// Behind each host's name: n01 with -ib is n01-ib
    #[arg(long, value_name = "TEXT", group = "address", allow_hyphen_values = true)]
    pub(crate) host_suffix: Option<String>,
    /// A substitution over host names, as in sed: 's/^c(\d\d)(\d\d)$/172.28.\1.\2/'
    #[arg(long, value_name = "RULE", group = "address")]
    pub(crate) host_map: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlaceArg {
    Pack,
    Spread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnArg {
    Auto,
    Slurm,
    Htcondor,
    Local,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    /// `export NAME=value` lines
    Shell,
    /// A JSON object of all variables
    Json,
    /// The value of TF_CONFIG alone
    TfConfig,
    /// The serialized tensorflow.ServerDef
    ServerDef,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FrameworkArg {
    /// TF_CONFIG
    Tensorflow,
    /// MASTER_ADDR, RANK, WORLD_SIZE and the like
    Torch,
    /// What jax.distributed.initialize() reads
    Jax,
    /// RALLYPOINT_* alone
    Plain,
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

/// `90`, `10s`, `1.5min`, `2h`, `200ms`
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("expected a time such as 10s, 5min or 2h".to_owned()),
    };
    let seconds =
        number.parse::<f64>().map_err(|_| "expected a time such as 10s, 5min or 2h".to_owned())? * scale;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| *time <= Duration::from_secs(10 * 365 * 86400))
        .ok_or_else(|| "that is longer than any job".to_owned())
}

fn port_range(text: &str) -> Result<(u16, u16), String> {
    let bad = || "expected two ports such as 20000-20999".to_owned();
    let (lo, hi) = text.split_once('-').ok_or_else(bad)?;
    let (lo, hi) = (lo.trim().parse().map_err(|_| bad())?, hi.trim().parse().map_err(|_| bad())?);
    if lo == 0 || hi < lo { Err(bad()) } else { Ok((lo, hi)) }
}

fn inter_op_threads(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(1) => Err("with one, TensorFlow 2's coordinator waits for ever: its own op fills the only thread"
            .to_owned()),
        Ok(count @ 2..=65536) => Ok(count),
        _ => Err("expected a number from 2 on".to_owned()),
    }
}

fn restart(text: &str) -> Result<(String, u32), String> {
    let (role, count) = text.split_once('=').ok_or("expected a role and a number such as worker=3")?;
    let count = count.parse().map_err(|_| "expected a role and a number such as worker=3")?;
    Ok((role.to_owned(), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ms) in
            [("10", 10_000), ("10s", 10_000), ("1.5min", 90_000), ("2h", 7_200_000), ("200ms", 200), ("0", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["", "s", "ten", "-1", "5y", "1e99h", "99999999999h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
