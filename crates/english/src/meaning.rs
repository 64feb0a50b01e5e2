//! What each event means and what its fields say, for the page about them.

use rallypoint::event::RunEvent;

/// What an event means; nothing if this crate does not know it yet, which a test notices.
///
/// Fields that all events of members have (`rank`, `role`, `index`) are not explained here.
pub fn event_meaning(event: &RunEvent) -> Option<&'static str> {
    while_meeting(event).or_else(|| while_running(event)).or_else(|| at_the_end(event))
}

fn while_meeting(event: &RunEvent) -> Option<&'static str> {
    Some(match event {
        RunEvent::Meeting { .. } => "This agent looks for the others; `way` is how.",
        RunEvent::RanBefore { .. } => {
            "The scheduler has started this member `runs` times before, and would not start the others again."
        }
        RunEvent::Searching { .. } => {
            "No leader was found so far; `obstacle` has the `reason`, and what is known about it."
        }
        RunEvent::LeaderGone { .. } => {
            "The leader is gone before all have come, and this agent takes its place."
        }
        RunEvent::Waiting { .. } => {
            "`come` of `world` members have come; `missing` is null while not even the first of a scheduler's step has."
        }
        RunEvent::Came { .. } => "A member has come.",
        RunEvent::LostWhileWaiting { .. } => {
            "A member that had come is lost before all have; `why` tells how that is known."
        }
        RunEvent::Stranger { .. } => {
            "Somebody who does not belong to this job was turned away; the first few are told one by one."
        }
        RunEvent::Strangers { .. } => {
            "`count` more strangers were turned away; `reasons` has pairs of a reason and a number, where null stands for all other reasons."
        }
        RunEvent::Refused { .. } => "A member of this job does not fit, and was refused.",
        RunEvent::LeaderSilent { .. } => {
            "The leader that this agent waits with has said nothing for `silent` seconds."
        }
        RunEvent::LeaderLost { .. } => {
            "The leader is lost before all had come; those that have come meet again."
        }
        RunEvent::AttemptOver { .. } => {
            "The attempt that ran when this agent came has ended without it; `meets_again` tells whether it meets the others for the next one."
        }
        RunEvent::StepStarting { .. } => "The scheduler's launcher is being started with this command.",
        RunEvent::Gathered { .. } => "All `world` members have come; the leader waited `seconds`.",
        _ => return None,
    })
}

fn while_running(event: &RunEvent) -> Option<&'static str> {
    Some(match event {
        RunEvent::Roster { .. } => "Everyone's address; `members` are in the order of their ranks.",
        RunEvent::Note { .. } => "Something that a person should know about the members' variables.",
        RunEvent::Begun { .. } => {
            "The members start, on `hosts` hosts; `left` is the time until the scheduler's limit, null where it is not known."
        }
        RunEvent::Joined { .. } => "All have come, and this agent's own member starts; another agent leads.",
        RunEvent::Started { .. } => {
            "A member's process runs, as `pid` on `host`; `\"served\":true` if it is a server without Python (`--serve`)."
        }
        RunEvent::Listening { .. } => {
            "Somebody listens on the member's port; it is seen within 50 ms at first, and later within an eighth of the time that the member has run, at most a minute."
        }
        RunEvent::Finished { .. } => "A member has ended with exit code 0, asked to or not.",
        RunEvent::Failed { .. } => {
            "A member has ended otherwise, and nobody had asked it to; `code` is its exit code, 128 + n for a signal, or one of rallypoint's own. The first one whose role is not tolerated is the cause of the job's end."
        }
        RunEvent::Stopped { .. } => {
            "A member has ended otherwise than with 0 while the job was being stopped."
        }
        RunEvent::Restarted { .. } => {
            "A member has failed and is started again (`--restart`); only its last failure has a `failed` event."
        }
        RunEvent::Rehearsed { .. } => {
            "A fault was done on purpose (`--rehearse`), `after` seconds from the member's first start: `kill`, `term`, `warn`, `stop`, `continue` or `lose`, to the process `pid`. That of `lose` is the member's agent, which ends a moment later."
        }
        RunEvent::NotRehearsed { .. } => {
            "A fault on purpose was not done to these `members`: they did not run then, or, with `\"over\":true`, the job was over before."
        }
        RunEvent::StartedElsewhere { .. } => {
            "The scheduler has started a member again, on `host`, while its job runs: this attempt ends."
        }
        RunEvent::Signal { .. } => {
            "A signal asks this agent to end the job; `again` if it is the second one, which kills everyone."
        }
        RunEvent::SignalElsewhere { .. } => "A signal has asked the agent of another member to end the job.",
        RunEvent::StepEnded { .. } => {
            "The scheduler's launcher has ended while its members were running: the job is stopped."
        }
        RunEvent::LeaderLostWhileRunning { .. } => {
            "The leader is lost while the job runs: this agent stops its member."
        }
        RunEvent::RollCall { .. } => {
            "Some of the members that decide the end have finished, and others run on; told every minute."
        }
        RunEvent::Silent(_) => {
            "Nobody has written anything for `silent` seconds (after a minute, then 5, then 30 minutes): what is known of the members, and what it may be, the likeliest first. `listening` and `not_listening` are null where the framework's members do not listen."
        }
        _ => return None,
    })
}

fn at_the_end(event: &RunEvent) -> Option<&'static str> {
    Some(match event {
        RunEvent::Lingering { .. } => {
            "All were asked to end, and these have not; they are killed in `kill_in` seconds. `interrupted` if the job ends because of a signal."
        }
        RunEvent::OutputLost { .. } => {
            "Bytes of a member's output, of a log file or of these events could not be written: `bytes` so far, of `path` (with `on HOST` where another agent has told it). At once for each path, then with `\"again\":true` at most every 30 s."
        }
        RunEvent::NotShown => {
            "The end of what members wrote could not be shown: whoever reads it has stopped, or is too slow."
        }
        RunEvent::NoStandIn { .. } => {
            "No server keeps the address of a member alive that has finished; `not_found` if no TensorFlow was found."
        }
        RunEvent::LeftBehind { .. } => "Processes that members had left behind were ended.",
        RunEvent::Requeued { .. } => {
            "A member asks that the whole job be run again (`--requeue-on`); `job` is the scheduler's id."
        }
        RunEvent::NotRequeued { .. } => "The scheduler does not run the job again.",
        RunEvent::Over(_) => {
            "Nobody is left, and this is how it went. `code` is the exit code, and `from` tells whose it is: `member` for a member's own (or 0), `rallypoint` for one of rallypoint's. `members` has how each ended, in the order of their ranks: `tail` are its last lines on stderr, `reason` is what it wrote to `RALLYPOINT_ERROR_FILE`. `lost` is what could not be written, `left_behind` how many processes members had left behind."
        }
        RunEvent::Told { .. } => {
            "The leader has told this agent how it went: the exit code for all, and the verdict."
        }
        _ => return None,
    })
}
