//! `rallypoint serve`

use clap::Args as ClapArgs;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Debug, ClapArgs)]
pub(crate) struct ServeArgs {
    /// A file with TF_CONFIG [default: the variable]
    #[arg(long, value_name = "FILE")]
    pub(crate) tf_config: Option<PathBuf>,
    /// A file with a serialized tensorflow.ServerDef instead
    #[arg(long, value_name = "FILE", conflicts_with = "tf_config")]
    pub(crate) server_def: Option<PathBuf>,
    /// Where TensorFlow is: its package, an environment, or a directory of libraries [default: look for it]
    #[arg(long, value_name = "DIR")]
    pub(crate) tensorflow: Option<PathBuf>,
    /// Say what would be served, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// When it serves, print a JSON object for scripts
    #[arg(long)]
    pub(crate) json: bool,
    /// A command whose Python's TensorFlow is taken
    #[arg(last = true, hide = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) options: ServerArgs,
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

fn inter_op_threads(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(1) => Err("with one, TensorFlow 2's coordinator waits for ever: its own op fills the only thread"
            .to_owned()),
        Ok(count @ 2..=65536) => Ok(count),
        _ => Err("expected a number from 2 on".to_owned()),
    }
}
