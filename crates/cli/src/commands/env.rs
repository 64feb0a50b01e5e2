//! `rallypoint env`

use super::{print, print_json};
use crate::args::{EnvArgs, EnvFormat};
use crate::exit::{Exit, Failure};
use crate::settings;
use rallypoint::framework::{Extras, child_env, server_def, tensorflow};
use rallypoint::hint;
use rallypoint::hint::{Hint, Hinted, Setting};
use rallypoint::plan::{Member, Plan};
use rallypoint::roster::{Roster, StaticPorts};
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Debug, Error)]
enum WhichMember {
    #[error("this environment does not tell which of the {world} members is meant")]
    Untold { world: u32 },
    #[error("rank {rank} does not exist; there are {world} members")]
    Outside { rank: u32, world: u32 },
}

impl Hinted for WhichMember {
    fn hint(&self) -> Option<Hint> {
        match self {
            WhichMember::Untold { world } => Some(hint!(
                "give ",
                Setting::Rank.with("0"),
                " to ",
                Setting::Rank.with((world - 1).to_string()),
                ", or start it with srun"
            )),
            WhichMember::Outside { world, .. } => Some(hint!(format!("ranks go from 0 to {}", world - 1))),
        }
    }
}

#[derive(Debug, Error)]
#[error("cannot write {}: {source}", path.display())]
struct Unwritable {
    path: PathBuf,
    source: std::io::Error,
}

impl Hinted for Unwritable {
    fn hint(&self) -> Option<Hint> {
        None
    }
}

pub(super) fn run(args: &EnvArgs) -> Result<Exit, Failure> {
    let spec = settings::job_spec(&args.roles, &args.gpus)?;
    let (plan, environ) = settings::plan(&args.source, &spec)?;
    let ports = args.port_base.map_or(StaticPorts::Reserved, StaticPorts::Base);
    let roster = Roster::from_static(plan, &ports, &settings::addressing(&args.addresses)?)?;
    if let Some(folder) = &args.write_dir {
        return write_files(&roster, folder);
    }
    let member = member(roster.plan(), args.rank)?;
    let variables = || child_env(args.framework, &roster, member, &environ, &Extras::default());
    match args.format {
        EnvFormat::Shell => print(variables()?.to_shell().as_bytes()),
        EnvFormat::Json => print_json(&variables()?.variables),
        EnvFormat::TfConfig => print(format!("{}\n", tensorflow::tf_config(&roster, member)).as_bytes()),
        EnvFormat::ServerDef => print(&server_def::server_def(&roster, member)?),
    }
}

/// The one of the user's rank, else our own, else the only one there is.
fn member(plan: &Plan, given: Option<u32>) -> Result<&Member, WhichMember> {
    let world = plan.world();
    match (given.or(plan.me()), plan.members()) {
        (Some(rank), _) => plan.member(rank).ok_or(WhichMember::Outside { rank, world }),
        (None, [only]) => Ok(only),
        (None, _) => Err(WhichMember::Untold { world }),
    }
}

/// `DIR/worker-1.json` for every member.
fn write_files(roster: &Roster, folder: &Path) -> Result<Exit, Failure> {
    let cannot = |path: &Path| {
        let path = path.to_owned();
        move |source| Unwritable { path, source }
    };
    std::fs::create_dir_all(folder).map_err(cannot(folder))?;
    let mut names = String::new();
    for member in roster.plan().members() {
        let path = folder.join(format!("{}-{}.json", member.role, member.index));
        std::fs::write(&path, format!("{}\n", tensorflow::tf_config(roster, member)))
            .map_err(cannot(&path))?;
        names.push_str(&format!("{}\n", path.display()));
    }
    print(names.as_bytes())
}
