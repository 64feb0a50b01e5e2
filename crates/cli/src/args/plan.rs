//! `rallypoint plan` and `env`: who is who, with what, and where.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, ValueEnum};
use rallypoint::framework::{self, FRAMEWORKS, Framework};
use rallypoint::scheduler::On;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct PlanArgs {
    /// Print JSON for scripts, in every task of a Slurm step
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the table in every task of a Slurm step; otherwise task 0 alone does
    #[arg(long)]
    pub(crate) all_ranks: bool,
    #[command(flatten)]
    pub(crate) roles: RoleArgs,
    #[command(flatten)]
    pub(crate) gpus: GpuArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct EnvArgs {
    /// How to print the variables
    #[arg(long, value_enum, default_value_t = EnvFormat::Shell)]
    pub(crate) format: EnvFormat,
    /// The member, where the environment does not tell which one this is
    #[arg(long, value_name = "N")]
    pub(crate) rank: Option<u32>,
    /// Whose variables to print
    #[arg(long, default_value = FRAMEWORKS[0].name(), value_parser = framework())]
    pub(crate) framework: &'static dyn Framework,
    /// Write a TF_CONFIG file for every member into this directory instead
    #[arg(long, value_name = "DIR", conflicts_with_all = ["rank", "format"])]
    pub(crate) write_dir: Option<PathBuf>,
    /// First port of a host; each member there takes the next [default: SLURM_STEP_RESV_PORTS, else 8888]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port_base: Option<u16>,
    #[command(flatten)]
    pub(crate) roles: RoleArgs,
    #[command(flatten)]
    pub(crate) gpus: GpuArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) addresses: AddressArgs,
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

/// One of the frameworks, with what its members get.
pub(crate) fn framework() -> impl TypedValueParser<Value = &'static dyn Framework> {
    let names =
        FRAMEWORKS.iter().map(|framework| PossibleValue::new(framework.name()).help(framework.about()));
    PossibleValuesParser::new(names).map(|name| framework::by_name(&name).unwrap_or(FRAMEWORKS[0]))
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
    /// One role per rank, in rank order: ps,worker*3,ps,worker*3
    #[arg(long, value_name = "LIST", conflicts_with_all = ["ps", "workers", "chief", "evaluator", "place"])]
    pub(crate) roles: Option<String>,
    /// Parameter servers on the first ranks, or on different hosts
    #[arg(long, value_enum, default_value_t = PlaceArg::Pack)]
    pub(crate) place: PlaceArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PlaceArg {
    Pack,
    Spread,
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
    #[arg(long, default_value = "auto", value_parser = on())]
    pub(crate) on: On,
    /// Plan for these hosts, a host list, instead of an allocation
    #[arg(long, value_name = "HOSTLIST", conflicts_with_all = ["environ", "on"])]
    pub(crate) nodes: Option<String>,
    /// Members on each host of --nodes [default: as many as the roles need]
    #[arg(long, value_name = "N", requires = "nodes")]
    pub(crate) tasks_per_node: Option<u32>,
    #[command(flatten)]
    pub(crate) captured: CapturedArgs,
}

/// `auto`, or one of the schedulers.
pub(crate) fn on() -> impl TypedValueParser<Value = On> {
    PossibleValuesParser::new(On::names()).map(|name| On::named(&name).unwrap_or_default())
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
