//! The end of a job: what is left is ended, everyone is told, and what it came to is said.

use super::executor::{Executor, Finished};
use super::launcher::Step;
use super::losses::{NOT_SHOWN, Tally};
use super::others::{Others, say_goodbye};
use super::patience::Patience;
use super::run::{ClosingRow, LogErrors, Notice, Requeue, Talk};
use super::signals::Signals;
use crate::clock;
use crate::events::{CodeSource, EventLog, JobEvent};
use crate::job::Job;
use crate::outcome::{MemberOutcome, Outcome, Verdict};
use crate::plan::{Member, Plan};
use crate::process::run_with_limit;
use crate::roster::Roster;
use std::process::Command;
use std::time::Duration;

/// How long the scheduler may take to answer that the job is queued again.
const REQUEUE_LIMIT: Duration = Duration::from_secs(20);

/// What is left of a job when nobody runs any more.
pub(super) struct Closing<'a> {
    pub(super) roster: Roster,
    pub(super) job: Job,
    pub(super) executor: Executor,
    pub(super) others: Option<Others>,
    pub(super) step: Option<Step>,
    pub(super) events: EventLog,
    pub(super) grace: Duration,
    pub(super) requeue: Option<Requeue>,
    pub(super) lost: Tally,
    pub(super) log_errors: LogErrors,
    pub(super) talk: Talk<'a>,
}

impl Closing<'_> {
    /// Ends what is left, tells everyone, and says how it went.
    pub(super) async fn close(self, signals: &mut Signals) -> Outcome {
        let Closing {
            roster,
            job,
            executor,
            mut others,
            step,
            mut events,
            requeue,
            talk,
            lost,
            log_errors,
            grace,
        } = self;
        let verdict = job.verdict().cloned().unwrap_or(Verdict::Success);
        if let Some(mut step) = step {
            // Its tasks end when they have heard; then it has written all that they wrote.
            let verdict = judge(verdict.clone(), &lost, log_errors);
            say_goodbye(&mut others, verdict.code(), &verdict.lines(roster.plan())).await;
            step.see_out().await;
        }
        let is_interrupted = matches!(verdict, Verdict::Interrupted(_));
        let limit = executor.stop_limit().filter(|_| is_interrupted);
        let (patience, deadline) = Patience::new(limit, grace);
        let Finished { left, drained, mut heard } =
            patience.heed(signals, executor.finish_all(&deadline)).await;
        if !drained.shown {
            talk(Notice::Failure(NOT_SHOWN.to_owned()));
        }
        let mut lost = lost;
        let mut hear = |lost: &mut Tally| {
            while let Ok(loss) = heard.try_recv() {
                lost.add(loss, clock::now());
            }
        };
        hear(&mut lost);
        for loss in drained.lost {
            lost.add(loss, clock::now());
        }
        let verdict = judge(verdict, &lost, log_errors);
        let source = if verdict.is_own_code() { CodeSource::Rallypoint } else { CodeSource::Member };
        events.write(roster.plan().attempt(), &JobEvent::Over { code: verdict.code(), source });
        events.finish(deadline).await;
        // The last events may be what is lost.
        hear(&mut lost);
        let verdict = judge(verdict, &lost, log_errors);
        let code = verdict.code();
        let mut summary = verdict.lines(roster.plan());
        if !matches!(verdict, Verdict::OutputLost(_)) {
            summary.extend(lost.lines());
        }
        if left > 0 {
            talk(Notice::Line(format!(
                "{left} process{} left behind by members: ended",
                if left == 1 { "" } else { "es" }
            )));
        }
        talk(Notice::Closing(closing_rows(roster.plan(), job.members())));
        for line in &summary {
            talk(Notice::Verdict(line.clone()));
        }
        say_goodbye(&mut others, code, &summary).await;
        if let (Verdict::Failed(failure), Some(requeue)) = (&verdict, requeue)
            && job.rules().asks_for_requeue(&failure.ended.end)
        {
            ask_for_another_run(&requeue, &roster.plan().members()[failure.rank as usize], talk);
        }
        let attempt = roster.plan().attempt();
        Outcome::Whole { attempt, members: job.members().to_vec(), verdict, left_behind: left }
    }
}

/// Puts the whole job back into the queue.
fn ask_for_another_run(requeue: &Requeue, who: &Member, talk: Talk<'_>) {
    talk(Notice::Line(format!("{who} asks for another run: job {} goes back into the queue", requeue.job)));
    let mut command = Command::new(&requeue.command[0]);
    if let Err(reason) = run_with_limit(command.args(&requeue.command[1..]), REQUEUE_LIMIT) {
        talk(Notice::Failure(format!("job {} cannot be requeued: {reason}", requeue.job)));
    }
}

/// What the job came to, with what could not be written.
fn judge(verdict: Verdict, lost: &Tally, log_errors: LogErrors) -> Verdict {
    match verdict {
        Verdict::Success if !lost.is_empty() && log_errors == LogErrors::Fail => {
            Verdict::OutputLost(lost.lines())
        }
        other => other,
    }
}

fn closing_rows(plan: &Plan, outcomes: &[MemberOutcome]) -> Vec<ClosingRow> {
    plan.members()
        .iter()
        .zip(outcomes)
        .map(|(member, outcome)| {
            let served = if outcome.served { "served, " } else { "" };
            let end = match &outcome.ended {
                None => "not started".to_owned(),
                Some(ended) if ended.end.is_success() && outcome.served => "served until stopped".to_owned(),
                Some(ended) if ended.end.is_success() => "finished".to_owned(),
                Some(ended) if outcome.stopped => format!("{served}stopped ({})", ended.end),
                Some(ended) => format!("{served}failed ({})", ended.end),
            };
            let restarts = match outcome.restarts {
                0 => String::new(),
                1 => ", restarted once".to_owned(),
                n => format!(", restarted {n} times"),
            };
            ClosingRow {
                member: member.to_string(),
                host: plan.host(member).unwrap_or("?").to_owned(),
                pid: outcome.pid,
                end: format!("{end}{restarts}"),
                seconds: outcome.ended.as_ref().map(|ended| ended.seconds),
                peak_kib: outcome.ended.as_ref().map(|ended| ended.peak_kib),
            }
        })
        .collect()
}
