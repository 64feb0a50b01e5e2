//! `rallypoint serve`

use crate::args::{ServeArgs, ServerArgs};
use crate::exit::{Exit, Failure, report, say};
use rallypoint::environ::Environ;
use rallypoint::hint;
use rallypoint::hint::{Hint, Hinted, Setting};
use rallypoint::outcome::OwnCode;
use rallypoint::serve::find::{Found, find};
use rallypoint::serve::{self, Definition, Options};
use rallypoint::variables as var;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// A library that takes longer to load than this lies on a file system that hangs.
const LOAD_LIMIT: Duration = Duration::from_secs(600);
/// The definition of a million members has some 30 MB.
const MAX_FILE: u64 = 64 << 20;

#[derive(Debug, Error)]
enum CannotServe {
    #[error("TF_CONFIG is not set, so there is nothing to serve")]
    NothingToServe,
    #[error("cannot read {}: {source}", file.display())]
    Unreadable { file: PathBuf, source: std::io::Error },
    #[error(
        "TensorFlow was not loaded from {} within {} s", folder.display(), LOAD_LIMIT.as_secs()
    )]
    Slow { folder: PathBuf },
}

impl Hinted for CannotServe {
    fn hint(&self) -> Option<Hint> {
        match self {
            CannotServe::NothingToServe => Some(hint!(
                "give ",
                Setting::TfConfig.with("FILE"),
                " or ",
                Setting::ServerDef.with("FILE"),
                ", or let `rallypoint run --serve ps` start it"
            )),
            CannotServe::Unreadable { .. } => None,
            CannotServe::Slow { .. } => Some(hint!("is its file system alive?")),
        }
    }
}

/// What `--json` prints, once it serves.
#[derive(serde::Serialize)]
struct Ready<'a> {
    role: &'a str,
    index: u32,
    address: &'a str,
    port: u16,
    pid: u32,
    tensorflow: &'a str,
    folder: &'a Path,
    milliseconds: f64,
}

pub(super) fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let started = Instant::now();
    serve::leave_when_told();
    let environ = Environ::variables_here();
    let options = options(&args.options)?;
    let definition = definition(args, &environ)?.with_config(options.config_proto()?);
    let own = options.variables(&environ, &definition)?;
    serve::set_variables(&own.variables);
    own.notes.iter().for_each(|note| say(note));
    let found = match find(args.tensorflow.as_deref(), &args.command, &environ) {
        Ok(found) => found,
        Err(error) => return Ok(not_started(error)),
    };
    if args.dry_run {
        return dry_run(&definition, &found);
    }
    let folder = found.folder.clone();
    let serving = serve::start(&definition, &found, &environ, move |waited| slow(&folder, waited));
    let serving = match serving {
        Ok(serving) => serving,
        Err(error) => serve::leave(not_started(error).code()),
    };
    let ready = Ready {
        role: &definition.role,
        index: definition.index,
        address: &definition.address,
        port: definition.port,
        pid: std::process::id(),
        tensorflow: &serving.version,
        folder: &found.folder,
        milliseconds: started.elapsed().as_secs_f64() * 1e3,
    };
    say(&format!(
        "{} serves on port {} after {:.0} ms, with TensorFlow {} from {}",
        definition.member(),
        ready.port,
        ready.milliseconds,
        ready.tensorflow,
        found.folder.display()
    ));
    if args.json {
        super::print_json(&ready)?;
    }
    loop {
        std::thread::park();
    }
}

fn not_started(error: impl Hinted + Send + Sync + 'static) -> Exit {
    report(Err(Box::new(error)));
    Exit::Run(OwnCode::NotStarted.code())
}

fn slow(folder: &Path, waited: Duration) {
    if waited > LOAD_LIMIT {
        serve::leave(not_started(CannotServe::Slow { folder: folder.to_owned() }).code());
    }
    say(&format!("still loading TensorFlow from {} ({} s)", folder.display(), waited.as_secs()));
}

fn dry_run(definition: &Definition, found: &Found) -> Result<Exit, Failure> {
    let text = format!(
        "{} would serve on port {}, known to others as {}\nTensorFlow: {}\nfound by: {}\n",
        definition.member(),
        definition.port,
        definition.address,
        found.library.display(),
        found.how
    );
    super::print(text.as_bytes())
}

fn definition(args: &ServeArgs, environ: &Environ) -> Result<Definition, Failure> {
    if let Some(file) = &args.server_def {
        return Ok(Definition::from_server_def(&file.display().to_string(), &read(file)?)?);
    }
    if let Some(file) = &args.tf_config {
        let text = read(file)?;
        return Ok(Definition::from_tf_config(&file.display().to_string(), &String::from_utf8_lossy(&text))?);
    }
    match environ.get_nonempty(var::TF_CONFIG) {
        None => Err(CannotServe::NothingToServe.into()),
        Some(text) => Ok(Definition::from_tf_config(var::TF_CONFIG, text)?),
    }
}

fn options(args: &ServerArgs) -> Result<Options, Failure> {
    let config = match &args.config {
        None => None,
        Some(file) => Some((file.display().to_string(), read(file)?)),
    };
    Ok(Options {
        intra_op_threads: args.intra_op_threads,
        inter_op_threads: args.inter_op_threads,
        memory_growth: args.memory_growth,
        device_filters: args.device_filter.clone(),
        config,
        grpc_max_message_length: args.grpc_max_message_length,
        grpc_options: args.grpc_option.clone(),
    })
}

fn read(file: &Path) -> Result<Vec<u8>, CannotServe> {
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    let checked = match opened {
        Ok(size) if size as u64 > MAX_FILE => Err(std::io::Error::other("larger than 64 MiB")),
        other => other,
    };
    checked.map(|_| bytes).map_err(|source| CannotServe::Unreadable { file: file.to_owned(), source })
}
