//! A toy scheduler, for tests alone: `docs/guides/add-a-scheduler.md`, followed to the letter.
//!
//! It tells a task its rank, the number of tasks and the hosts. `toyrun` starts one agent per task, and `toysub` takes
//! scripts. Both are small shell scripts of the test.

use super::submit::{HandedIn, OptionSpec, Order, Submission, Submit, SubmitError, Told, Value, hand_in};
use super::{
    AllocationError, LaunchRequest, MeetRequest, PlaceError, Scheduler, SchedulerError, Surroundings,
};
use crate::allocation::{Allocation, Host, HostNames, Slot, Source, places};
use crate::environ::Environ;
use crate::hint;
use crate::hint::{Hint, Hinted};
use crate::process::find_on_path;
use crate::rendezvous::WayToMeet;
use crate::roles::RoleRequest;
use crate::shell;
use crate::supervise::Launcher;
use crate::variables::{self as var, Family, Use, Variable};
use std::path::Path;
use thiserror::Error;

/// Its room.
#[derive(Debug)]
pub struct Toy;

pub(crate) const SOURCE: Source = Source {
    name: "toy",
    title: "the toy scheduler",
    heading: "Toy",
    hosts: HostNames::Scheduler,
    shares_output: true,
};

const TOY_JOB: &str = "TOY_JOB";
const TOY_TASKS: &str = "TOY_TASKS";
const TOY_RANK: &str = "TOY_RANK";
const TOY_BOARD: &str = "TOY_BOARD";

#[derive(Debug, Error)]
enum ToyError {
    #[error("{variable}={value:?}: expected a number")]
    NotANumber { variable: &'static str, value: String },
    #[error("toyrun is not on PATH")]
    NoToyrun,
}

impl Hinted for ToyError {
    fn hint(&self) -> Option<Hint> {
        match self {
            ToyError::NotANumber { .. } => Some(hint!("is this a toy job?")),
            ToyError::NoToyrun => None,
        }
    }
}

impl Scheduler for Toy {
    fn source(&self) -> Source {
        SOURCE
    }

    fn proof(&self) -> &'static [&'static str] {
        &[TOY_JOB]
    }

    fn allocation(&self, environ: &Environ, _roles: &RoleRequest) -> Result<Allocation, AllocationError> {
        let number = |variable: &'static str| {
            let value = environ.get_nonempty(variable).unwrap_or_default();
            value.parse::<u32>().map_err(|_| ToyError::NotANumber { variable, value: value.to_owned() })
        };
        let number = |variable| number(variable).map_err(|error| AllocationError::Scheduler(error.into()));
        let world = number(TOY_TASKS)?;
        let me = environ.get_nonempty(TOY_RANK).map(|_| number(TOY_RANK)).transpose()?;
        let host = Host::new(environ.hostname.clone().unwrap_or_else(|| "toy".to_owned()));
        let places = places(std::iter::repeat_n(0, world as usize), 1).into_iter();
        Ok(Allocation {
            scheduler: SOURCE,
            job: environ.get_nonempty(TOY_JOB).map(str::to_owned),
            attempt: 0,
            restarts: None,
            hosts: vec![host],
            slots: places.map(|place| Slot { place: Some(place), cpus: None }).collect(),
            me,
            bound: None,
            deadline: None,
            ports: None,
            notes: Vec::new(),
        })
    }

    fn variables(&self) -> Vec<Variable> {
        let read = |name, meaning| Variable {
            name,
            family: Family::Scheduler(SOURCE.name),
            usage: Use::Read,
            meaning,
        };
        vec![
            read(TOY_JOB, "The job's id."),
            read(TOY_TASKS, "The number of tasks."),
            read(TOY_RANK, "This task's rank."),
            read(TOY_BOARD, "A directory that all tasks see."),
        ]
    }

    fn look_around(&self, environ: &Environ) -> Surroundings {
        let context = if environ.get(TOY_RANK).is_some() { "a toy task" } else { "a toy job" };
        Surroundings { variables: vec![TOY_JOB, TOY_TASKS, TOY_RANK], context: context.to_owned() }
    }

    fn ways(&self) -> &'static [&'static str] {
        &["board"]
    }

    fn way(&self, _name: &str, request: &MeetRequest<'_>) -> Result<WayToMeet, PlaceError> {
        let board = request.environ.get_nonempty(TOY_BOARD).unwrap_or(".");
        Ok(WayToMeet::contested(request.directory(Path::new(board))?))
    }

    fn automatic_way(&self, request: &MeetRequest<'_>) -> Result<Option<WayToMeet>, PlaceError> {
        match request.plan.me() {
            Some(_) if request.plan.world() > 1 => self.way("board", request).map(Some),
            _ => request.without_a_way(),
        }
    }

    fn launcher(&self, request: &LaunchRequest<'_>) -> Option<Result<Launcher, SchedulerError>> {
        let Some(toyrun) = find_on_path("toyrun", request.environ.get(var::PATH)) else {
            return Some(Err(ToyError::NoToyrun.into()));
        };
        let mut command = vec![toyrun.into_os_string(), request.command.into()];
        command.extend_from_slice(request.arguments);
        Some(Ok(Launcher { name: "toyrun", command, variables: Vec::new() }))
    }

    fn submit(&self) -> Option<&'static dyn Submit> {
        Some(&Toysub)
    }
}

#[derive(Debug)]
struct Toysub;

#[derive(Debug)]
struct Script(String);

const OPTIONS: [OptionSpec; 1] = [OptionSpec::new("tasks", Value::Count("N"), "Tasks, one per member")];

impl Submit for Toysub {
    fn about(&self) -> &'static str {
        "Through toysub; its job id goes to stdout"
    }

    fn examples(&self) -> &'static str {
        "Examples:
  rallypoint submit toy --tasks 4 -- python train.py"
    }

    fn options(&self) -> &'static [OptionSpec] {
        &OPTIONS
    }

    fn prepare(&self, order: Order<'_>) -> Result<Box<dyn Submission>, SubmitError> {
        let tasks = order.given.number("tasks").unwrap_or(1);
        let setup = order.work.setup.map(|setup| setup.lines.join("\n") + "\n").unwrap_or_default();
        let line = shell::line(&order.work.command);
        Ok(Box::new(Script(format!("#!/bin/sh\n#TOY tasks={tasks}\n{setup}exec {line}\n"))))
    }
}

impl Submission for Script {
    fn script(&self) -> &str {
        &self.0
    }

    fn hand_in(&self) -> Result<HandedIn, SubmitError> {
        Ok(hand_in(SOURCE.title, "toysub", &[], &self.0, |answer| answer.lines().last())?)
    }

    fn follow(&self, id: &str, tell: &mut dyn FnMut(Told<'_>)) -> Result<u8, SubmitError> {
        tell(Told::Line(format!("toy job {id} is over")));
        Ok(0)
    }
}
