//! Where members meet: `--meet`, and what `auto` makes of the place we are in.

use super::{SCHEDULERS, SchedulerError};
use crate::environ::Environ;
use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use crate::plan::Plan;
use crate::rendezvous::address::Address;
use crate::rendezvous::directory::Directory;
use crate::rendezvous::{Key, Meeting, RendezvousError, WayToMeet};
use crate::variables as var;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

/// What the user asks for.
#[derive(Debug, Clone)]
pub struct PlaceRequest {
    /// `auto`, one of a scheduler's own ways, a directory, or `host:port`; `None` is `auto`.
    pub meet: Option<String>,
    /// The rank that the user gives this member; the scheduler's otherwise.
    pub rank: Option<u32>,
    /// What the user calls this job.
    pub job: Option<String>,
    /// How long to wait for all to come.
    pub timeout: Duration,
    /// Where this agent listens if it leads; everywhere otherwise.
    pub listen: Option<IpAddr>,
}

/// What a scheduler's way to meet is made from.
#[derive(Debug, Clone, Copy)]
pub struct MeetRequest<'a> {
    pub(crate) environ: &'a Environ,
    pub(crate) plan: &'a Plan,
    /// What the job is called, by the user or by the scheduler.
    pub(crate) job: Option<&'a str>,
    /// The user has given all members a key.
    pub(crate) all_have_a_key: bool,
}

/// Where and as whom to meet the others.
#[expect(missing_debug_implementations, reason = "a way to meet is a trait object")]
pub struct Place {
    /// Where.
    pub way: WayToMeet,
    /// As whom, and for how long.
    pub meeting: Meeting,
}

/// Why there is no place to meet.
#[derive(Debug, Error)]
pub enum PlaceError {
    /// `auto` was asked for, and the scheduler has no way to meet of its own.
    #[error("{world} members of {scheduler} have to meet")]
    NoWay {
        /// How many members have to meet.
        world: u32,
        /// The scheduler's title: `HTCondor`.
        scheduler: &'static str,
    },
    /// `auto` was asked for by a process that is no member, and the members would not all run on its host.
    #[error("inside an allocation of {hosts} hosts but not in a step")]
    NotInStep {
        /// How many hosts it has.
        hosts: usize,
    },
    /// An address without a port that could be.
    #[error("{text} is neither host:port nor a directory")]
    NoAddress {
        /// As the user wrote it.
        text: String,
    },
    /// The way belongs to no scheduler.
    #[error("no scheduler has a way to meet called {name}")]
    NoSuchWay {
        /// What was asked for.
        name: String,
    },
    /// A scheduler's way to meet cannot be taken here; in the words of its own room.
    #[error("{0}")]
    Scheduler(SchedulerError),
    /// The directory, the address or the key cannot be used.
    #[error(transparent)]
    Meeting(#[from] RendezvousError),
    /// Members would meet in the working directory, and the system does not tell it.
    #[error("the working directory is not known: {0}")]
    NoWorkingDirectory(std::io::Error),
}

impl Hinted for PlaceError {
    fn hint(&self) -> Option<Hint> {
        match self {
            PlaceError::NoWay { .. } => Some(hint!(
                "give all of them the same ",
                Setting::Meet.with("DIR"),
                ", a directory that they share"
            )),
            PlaceError::NotInStep { .. } => {
                Some(hint!("start it with the scheduler's launcher (srun), one rallypoint per task"))
            }
            PlaceError::NoSuchWay { .. } => None,
            PlaceError::NoAddress { text } => {
                Some(hint!(format!("write a port from 1 to 65535, or ./{text} for a directory of that name")))
            }
            PlaceError::Scheduler(error) => error.hint(),
            PlaceError::Meeting(error) => error.hint(),
            PlaceError::NoWorkingDirectory(_) => Some(hint!("give ", Setting::Meet.with("DIR"))),
        }
    }
}

impl MeetRequest<'_> {
    /// A directory that all members see.
    pub(crate) fn directory(&self, folder: &Path) -> Result<Directory, RendezvousError> {
        Directory::new(folder, self.job, self.plan.attempt())
    }

    /// The directory that this process was started in.
    pub(crate) fn working_directory(&self) -> Result<Directory, PlaceError> {
        Ok(self.directory(&std::env::current_dir().map_err(PlaceError::NoWorkingDirectory)?)?)
    }

    /// What `auto` comes to where the scheduler has no way of its own.
    pub(crate) fn without_a_way(&self) -> Result<Option<WayToMeet>, PlaceError> {
        let MeetRequest { environ, plan, .. } = self;
        match plan.me() {
            Some(_) if plan.world() == 1 => Ok(None),
            Some(_) => Err(PlaceError::NoWay { world: plan.world(), scheduler: plan.scheduler().title }),
            None if plan.hosts().len() == 1
                && environ.hostname.as_deref() == plan.hosts().first().map(|host| host.name.as_str()) =>
            {
                Ok(None)
            }
            None => Err(PlaceError::NotInStep { hosts: plan.hosts().len() }),
        }
    }
}

/// The schedulers' own ways to meet, by the names that `--meet` takes.
pub fn ways() -> impl Iterator<Item = &'static str> {
    SCHEDULERS.iter().flat_map(|scheduler| scheduler.ways()).copied()
}

/// `None` if all members run here.
pub fn place(request: &PlaceRequest, environ: &Environ, plan: &Plan) -> Result<Option<Place>, PlaceError> {
    let key = match environ.get_nonempty(var::RALLYPOINT_KEY_FILE) {
        Some(file) => Some(Key::from_file(Path::new(file))?),
        None => None,
    };
    let scheduler = super::of(plan.scheduler());
    // A scheduler's job may have several steps at once, which must not meet each other.
    let of_scheduler = || scheduler.job_name(environ);
    let job = request.job.clone().or_else(of_scheduler).or_else(|| plan.job().map(str::to_owned));
    let meet = MeetRequest { environ, plan, job: job.as_deref(), all_have_a_key: key.is_some() };
    let with_way = |name: &str| SCHEDULERS.iter().find(|scheduler| scheduler.ways().contains(&name));
    let way: Option<WayToMeet> = match request.meet.as_deref() {
        None | Some("auto") => scheduler.automatic_way(&meet)?,
        Some(text) => Some(match with_way(text) {
            Some(scheduler) => scheduler.way(text, &meet)?,
            None if is_host_and_port(text) && key.is_none() => {
                return Err(RendezvousError::NoKey { address: text.to_owned() }.into());
            }
            None if is_host_and_port(text) => WayToMeet::contested(Address::new(text)?),
            None if looks_like_an_address(text) => {
                return Err(PlaceError::NoAddress { text: text.to_owned() });
            }
            None => WayToMeet::contested(meet.directory(Path::new(text))?),
        }),
    };
    let meeting = Meeting { rank: request.rank, key, timeout: request.timeout, job, listen: request.listen };
    Ok(way.map(|way| Place { way, meeting }))
}

/// `host:99999` or `host:http`: hardly the name of a directory.
fn looks_like_an_address(text: &str) -> bool {
    !text.contains('/') && text.contains(':')
}

/// `host:port`, not a path.
fn is_host_and_port(text: &str) -> bool {
    !text.contains('/')
        && text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
