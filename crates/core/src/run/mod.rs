//! A job to run: the library's front door.
//!
//! ```no_run
//! use rallypoint::{Run, RunEvent};
//!
//! let outcome = Run::new(["python", "train.py"])
//!     .roles("ps,worker*2".parse()?)
//!     .start(|event| {
//!         if let RunEvent::Started { member, host, pid, .. } = event {
//!             println!("{member} runs on {host} as process {pid}");
//!         }
//!     })?;
//! println!("exit code {}", outcome.code());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | subject |
//! |---|---|
//! | `mod` | what is asked for, and how it is made ready |
//! | `mode` | with whom the members work |
//! | `task` | one member of a cluster that a file describes |
//! | `servers` | members without Python |
//! | `program` | whether the program is there |
//! | `private` | a folder of the run alone |
//! | `ready` | guard and agent |
//! | `start` | a job in processes of its own, and what they tell |
//! | `error` | what can be wrong |

mod error;
mod mode;
mod private;
mod program;
mod ready;
mod servers;
mod start;
mod task;

pub use error::RunError;
pub use program::{NoProgram, must_exist};
pub use ready::{Agent, Entered, Ready};

use crate::check::ConfigFile;
use crate::environ::Environ;
use crate::event::RunEvent;
use crate::framework::{FRAMEWORKS, Framework};
use crate::hint::Setting;
use crate::job::{Job, Rules, Until};
use crate::outcome::Outcome;
use crate::plan::{GpuRequest, JobSpec, Plan};
use crate::ports::{HandOver, PortChoice};
use crate::process::{check_descriptors, close_for_children};
use crate::rehearsal::Rehearsal;
use crate::roles::{RoleList, RoleRequest};
use crate::roster::Addressing;
use crate::scheduler::{self, On, PlaceRequest, local};
use crate::supervise::{AgentError, LogErrors, OutputStyle, Prepared, Requeue, RunSpec, guard};
use crate::variables as var;
use mode::Mode;
use private::PrivateFolder;
use servers::Servers;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use task::Task;

/// How long members have to end after SIGTERM, unless said otherwise.
const GRACE: Duration = Duration::from_secs(10);
/// How long all members may take to come, unless said otherwise.
const MEET_TIMEOUT: Duration = Duration::from_secs(600);

/// A job that is to be run: the program, the roles, whom to meet and how, when it ends, where its output goes.
///
/// All but the program has a default. [`Run::start`] runs it; [`Run::prepare`] answers every question first.
#[derive(Debug, Clone)]
pub struct Run {
    command: Vec<OsString>,
    job: JobSpec,
    on: On,
    task: Option<Task>,
    place: PlaceRequest,
    launched: bool,
    launcher_options: Vec<String>,
    agent: Option<AgentCommand>,
    rules: Rules,
    grace: Duration,
    rehearsal: Rehearsal,
    framework: &'static dyn Framework,
    threads: bool,
    ports: PortChoice,
    hand_over: HandOver,
    addressing: Addressing,
    style: OutputStyle,
    log_dir: Option<PathBuf>,
    events: Option<PathBuf>,
    log_errors: LogErrors,
    servers: Servers,
}

/// How an agent like this one is started, for launchers and for servers.
#[derive(Debug, Clone)]
struct AgentCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Run {
    /// A job whose members all run this program, with its arguments.
    pub fn new(command: impl IntoIterator<Item = impl Into<OsString>>) -> Run {
        Run {
            command: command.into_iter().map(Into::into).collect(),
            job: JobSpec::default(),
            on: On::Auto,
            task: None,
            place: PlaceRequest { meet: None, rank: None, job: None, timeout: MEET_TIMEOUT, listen: None },
            launched: false,
            launcher_options: Vec::new(),
            agent: None,
            rules: Rules::default(),
            grace: GRACE,
            rehearsal: Rehearsal::default(),
            framework: FRAMEWORKS[0],
            threads: true,
            ports: PortChoice::Any,
            hand_over: HandOver::ReuseAddr,
            addressing: Addressing::default(),
            style: OutputStyle { terminal: true, prefix: "[{role} {index}] ".to_owned(), colour: false },
            log_dir: None,
            events: None,
            log_errors: LogErrors::Fail,
            servers: Servers::default(),
        }
    }

    /// One role per rank: `"ps,worker*3".parse()?`.
    pub fn roles(self, roles: RoleList) -> Run {
        self.role_request(RoleRequest::List(roles))
    }

    /// Roles by their counts, dealt over the ranks.
    pub fn role_request(mut self, roles: RoleRequest) -> Run {
        self.job.roles = roles;
        self
    }

    /// How a host's GPUs are split among its members.
    pub fn gpus(mut self, gpus: GpuRequest) -> Run {
        self.job.gpus = gpus;
        self
    }

    /// CPUs of each member, instead of what was detected.
    pub fn cpus_per_task(mut self, cpus: Option<u32>) -> Run {
        self.job.cpus_per_task = cpus;
        self
    }

    /// The scheduler to believe in, instead of the one whose variables are there.
    pub fn on(mut self, on: On) -> Run {
        self.on = on;
        self
    }

    /// Runs the one member that a TF_CONFIG is for; `text` is what its variable will have.
    pub fn tf_config(mut self, config: ConfigFile, text: String) -> Result<Run, RunError> {
        self.job.roles = RoleRequest::List(config.role.parse()?);
        let task = Task::new(config, text)?;
        self.ports = PortChoice::Base(task.port);
        self.on = On::Scheduler(&local::Local);
        self.task = Some(task);
        Ok(self)
    }

    /// Where this agent meets the others: `auto`, a scheduler's own way, a directory that all see, or `host:port`.
    pub fn meet(mut self, way: impl Into<String>) -> Run {
        self.place.meet = Some(way.into());
        self
    }

    /// The rank of this agent's member, where the scheduler does not give one.
    pub fn rank(mut self, rank: Option<u32>) -> Run {
        self.place.rank = rank;
        self
    }

    /// A name for this job, where several meet in one place.
    pub fn job_name(mut self, name: Option<String>) -> Run {
        self.place.job = name;
        self
    }

    /// How long all members may take to come.
    pub fn meet_timeout(mut self, timeout: Duration) -> Run {
        self.place.timeout = timeout;
        self
    }

    /// The address of this machine at which the leader listens, if this agent leads; everywhere otherwise.
    pub fn listen(mut self, address: Option<IpAddr>) -> Run {
        self.place.listen = address;
        self
    }

    /// Where the `rallypoint` command is, and the arguments by which a launcher starts more agents like this one. Needed
    /// to start a step and to serve members without Python.
    pub fn rallypoint(mut self, program: PathBuf, arguments: Vec<OsString>) -> Run {
        self.agent = Some(AgentCommand { program, arguments });
        self
    }

    /// A launcher has started this agent, and tells on standard input who leads.
    pub fn launched(mut self, is_launched: bool) -> Run {
        self.launched = is_launched;
        self
    }

    /// More options for the launcher that is started. They may change how many members there are, and where.
    pub fn launcher_options(mut self, options: Vec<String>) -> Run {
        self.launcher_options = options;
        self
    }

    /// Whose end is the job's end, who may come back, whose failure the others survive.
    pub fn rules(mut self, rules: Rules) -> Run {
        self.rules = rules;
        self
    }

    /// How long members have to end after SIGTERM.
    pub fn grace(mut self, grace: Duration) -> Run {
        self.grace = grace;
        self
    }

    /// Faults that are done to members on purpose: `"kill:worker.1@30s".parse()?`.
    pub fn rehearse(mut self, rehearsal: Rehearsal) -> Run {
        self.rehearsal = self.rehearsal.and(rehearsal);
        self
    }

    /// Whose variables the members get.
    pub fn framework(mut self, framework: &'static dyn Framework) -> Run {
        self.framework = framework;
        self
    }

    /// Whether each member's CPUs become thread settings.
    pub fn threads(mut self, threads: bool) -> Run {
        self.threads = threads;
        self
    }

    /// Where members listen, and how a held port becomes theirs.
    pub fn ports(mut self, ports: PortChoice, hand_over: HandOver) -> Run {
        self.ports = ports;
        self.hand_over = hand_over;
        self
    }

    /// How members are addressed.
    pub fn addressing(mut self, addressing: Addressing) -> Run {
        self.addressing = addressing;
        self
    }

    /// How members' output is shown.
    pub fn output(mut self, style: OutputStyle) -> Run {
        self.style = style;
        self
    }

    /// Where each member's output is kept.
    pub fn log_dir(mut self, folder: Option<PathBuf>) -> Run {
        self.log_dir = folder;
        self
    }

    /// A file that gets every event, a JSON object per line.
    pub fn events(mut self, file: Option<PathBuf>) -> Run {
        self.events = file;
        self
    }

    /// What follows from output that cannot be written.
    pub fn log_errors(mut self, log_errors: LogErrors) -> Run {
        self.log_errors = log_errors;
        self
    }

    /// Roles that are TensorFlow servers without Python, `ps,worker`, and their ConfigProto.
    pub fn serve(mut self, roles: Option<String>, config: Option<PathBuf>) -> Run {
        self.servers.roles = roles;
        self.servers.config = config;
        self
    }

    /// Where the servers' TensorFlow is.
    pub fn tensorflow(mut self, folder: Option<PathBuf>) -> Run {
        self.servers.tensorflow = folder;
        self
    }

    /// Whether a server keeps the address of a worker that is done, for those who still open sessions.
    pub fn stand_in(mut self, stand_in: bool) -> Run {
        self.servers.stand_in = stand_in;
        self
    }

    /// Runs the job in processes of its own and returns how it went. `on_event` hears what happens, here.
    ///
    /// This process must have a single thread: it is forked. It may be ended at any time; then the job ends too.
    pub fn start(self, on_event: impl FnMut(RunEvent)) -> Result<Outcome, RunError> {
        start::start(self, on_event)
    }

    /// Who would run where.
    pub fn plan(&self, environ: &Environ) -> Result<Plan, RunError> {
        let allocation = scheduler::allocation(environ, self.on, &self.job.roles)?;
        // How many tasks the step will have, and where, is up to the launcher's options; its tasks will know.
        let is_launched = allocation.me.is_none() && !allocation.scheduler.is_plain_machine();
        let plan = match is_launched && !self.launcher_options.is_empty() {
            true => Plan::foreseen(allocation, &self.job)?,
            false => Plan::new(allocation, &self.job)?,
        };
        Ok(match &self.task {
            Some(task) => plan.as_task(task.index()),
            None => plan,
        })
    }

    /// Answers every question that can be answered before anything starts.
    pub fn prepare(self) -> Result<Ready, RunError> {
        self.prepare_in(scheduler::environ_here())
    }

    /// The same, for one who has looked at this process's environment already.
    pub fn prepare_in(mut self, environ: Environ) -> Result<Ready, RunError> {
        guard::survive_file_limits()?;
        if let (Some(file), false) = (&self.events, self.launched) {
            close_for_children(file);
        }
        let plan = self.plan(&environ)?;
        let program = self.command.first().ok_or(RunError::Nothing)?.to_string_lossy();
        let here = std::env::current_dir().unwrap_or_default();
        must_exist(&program, &here, environ.get(var::PATH))?;
        let mode = Mode::find(&self, &environ, &plan)?;
        // How many members there will be may be up to the launcher; they know, and say what is wrong.
        let all_are_known = !mode.is_step() || self.launcher_options.is_empty();
        if all_are_known {
            self.roles_exist(&plan)?;
            self.can_be_rehearsed(&plan)?;
        }
        self.rules.stand_in = self.lets_stand_in();
        let tensorflow = self.given_tensorflow(&environ, &mode)?;
        let served = self.served(&plan, &environ, &mode, tensorflow.as_deref())?;
        if self.task.is_some() && self.rules.until == Until::Auto {
            // Its one member decides; whether that is a server is the file's business.
            self.rules.until = Until::All;
        }
        if all_are_known {
            Job::new(&plan, self.rules.clone()).ok_or_else(|| AgentError::nobody(&self.rules))?;
        }
        check_descriptors().map_err(AgentError::from)?;
        let requeue = self.requeue(&plan, &environ)?;
        let private = private_folder(&environ)?;
        let spec = RunSpec {
            served,
            stand_in: self.stand_in_command(tensorflow),
            ports: self.port_choice(&plan),
            withheld: mode.taken_variables(),
            requeue,
            ask_deadline: match plan.deadline() {
                None => scheduler::of(plan.scheduler()).deadline_question(),
                Some(_) => None,
            },
            private: private.path.clone(),
            extra: self.task.into_iter().map(|task| (var::TF_CONFIG.to_owned(), task.text)).collect(),
            command: self.command,
            rules: self.rules,
            grace: self.grace,
            rehearsal: self.rehearsal,
            framework: self.framework,
            hand_over: self.hand_over,
            style: self.style,
            log_dir: self.log_dir,
            events: self.events,
            log_errors: self.log_errors,
            threads: self.threads,
            addressing: self.addressing,
        };
        Ok(Ready { prepared: Prepared { plan, environ, spec }, mode, private })
    }

    /// What the scheduler reserved for this step comes before any free port.
    fn port_choice(&self, plan: &Plan) -> PortChoice {
        match (&self.ports, plan.ports()) {
            (PortChoice::Any, Some(reserved)) => PortChoice::Prefer(reserved.to_vec()),
            (chosen, _) => chosen.clone(),
        }
    }

    /// How the scheduler is asked to run the job again; a launched task leaves that to its launcher.
    fn requeue(&self, plan: &Plan, environ: &Environ) -> Result<Option<Requeue>, RunError> {
        if self.rules.requeue_on.is_none() || self.launched {
            return Ok(None);
        }
        Ok(Some(scheduler::of(plan.scheduler()).requeue(plan, environ)?))
    }

    /// Refuses faults for members that nobody has: they would never come, and look as if all had gone well.
    fn can_be_rehearsed(&self, plan: &Plan) -> Result<(), RunError> {
        let counts = match &self.task {
            None => plan.role_counts(),
            Some(task) => task.role_counts()?,
        };
        Ok(self.rehearsal.check(&counts)?)
    }

    /// Refuses rules for a role that nobody has: a mistyped one would be noticed when a member fails.
    fn roles_exist(&self, plan: &Plan) -> Result<(), RunError> {
        let there: BTreeSet<&str> = match &self.task {
            None => plan.members().iter().map(|member| member.role.as_str()).collect(),
            Some(task) => task.role_names().collect(),
        };
        let restarts = self.rules.restarts.keys().map(|role| (Setting::Restart, role));
        let named = restarts.chain(self.rules.tolerate.iter().map(|role| (Setting::Tolerate, role)));
        for (setting, role) in named {
            if !there.contains(role.as_str()) {
                let there = there.into_iter().collect::<Vec<_>>().join(", ");
                return Err(RunError::NoSuchRole { setting, role: role.clone(), there });
            }
        }
        Ok(())
    }
}

/// In TMPDIR, or in memory: 64 agents that begin at once keep a disk busy with their small files.
fn private_folder(environ: &Environ) -> Result<PrivateFolder, RunError> {
    let make = |folder: &str| {
        let folder = PathBuf::from(folder);
        PrivateFolder::new(&folder, environ.now)
            .map_err(|source| RunError::NoPrivateFolder { folder, source })
    };
    match environ.get_nonempty(var::TMPDIR) {
        Some(folder) => make(folder),
        None => make("/dev/shm").or_else(|_| make("/tmp")),
    }
}
