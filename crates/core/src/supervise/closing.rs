//! The end of a job: what is left is ended, everyone is told, and what it came to is said.

use super::executor::{Executor, Finished};
use super::launcher::Step;
use super::losses::Tally;
use super::others::{Others, say_goodbye};
use super::patience::Patience;
use super::run::{LogErrors, Requeue};
use super::signals::Signals;
use super::stream::Stream;
use crate::clock;
use crate::event::RunEvent;
use crate::job::Job;
use crate::lane::Loss;
use crate::outcome::{Outcome, Verdict, Whole};
use crate::process::run_with_limit;
use crate::roster::Roster;
use std::process::Command;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long the scheduler may take to answer that the job is queued again.
const REQUEUE_LIMIT: Duration = Duration::from_secs(20);

/// What is left of a job when nobody runs any more.
pub(super) struct Closing<'a> {
    pub(super) roster: Roster,
    pub(super) job: Job,
    pub(super) executor: Executor,
    pub(super) others: Option<Others>,
    pub(super) step: Option<Step>,
    pub(super) stream: Stream<'a>,
    pub(super) grace: Duration,
    pub(super) requeue: Option<Requeue>,
    pub(super) lost: Tally,
    pub(super) log_errors: LogErrors,
}

impl Closing<'_> {
    /// Ends what is left, tells everyone, and says how it went.
    pub(super) async fn close(self, signals: &mut Signals) -> Outcome {
        let Closing { roster, job, executor, mut others, step, mut stream, grace, requeue, lost, log_errors } =
            self;
        let mut judge = Judge { job, attempt: roster.plan().attempt(), lost, log_errors, left_behind: 0 };
        if let Some(mut step) = step {
            // Its tasks end when they have heard; then it has written all that they wrote.
            say_goodbye(&mut others, &judge.whole()).await;
            step.see_out().await;
        }
        let is_interrupted = matches!(judge.job.verdict(), Some(Verdict::Interrupted(_)));
        let limit = executor.stop_limit().filter(|_| is_interrupted);
        let (patience, deadline) = Patience::new(limit, grace);
        let Finished { left, drained, mut heard } =
            patience.heed(signals, executor.finish_all(&deadline)).await;
        judge.left_behind = left;
        if !drained.shown {
            stream.emit(RunEvent::NotShown);
        }
        if left > 0 {
            stream.emit(RunEvent::LeftBehind { count: left });
        }
        judge.hear(&mut heard);
        drained.lost.into_iter().for_each(|loss| judge.lose(loss));
        stream.write(&RunEvent::Over(Box::new(judge.whole())));
        stream.finish(deadline).await;
        // The last events may be what is lost.
        judge.hear(&mut heard);
        let whole = judge.whole();
        stream.emit(RunEvent::Over(Box::new(whole.clone())));
        say_goodbye(&mut others, &whole).await;
        if let (Some((member, failure)), Some(requeue)) = (whole.first_failure(), requeue)
            && judge.job.rules().asks_for_requeue(&failure.ended.end)
        {
            stream.emit(RunEvent::Requeued { member: member.member.clone(), job: requeue.job.clone() });
            ask_for_another_run(&requeue, &mut stream);
        }
        Outcome::Whole(whole)
    }
}

/// What the job came to, with what could not be written so far.
struct Judge {
    job: Job,
    attempt: u32,
    lost: Tally,
    log_errors: LogErrors,
    left_behind: usize,
}

impl Judge {
    fn hear(&mut self, heard: &mut mpsc::Receiver<Loss>) {
        while let Ok(loss) = heard.try_recv() {
            self.lose(loss);
        }
    }

    fn lose(&mut self, loss: Loss) {
        self.lost.add(loss, clock::now());
    }

    fn whole(&self) -> Whole {
        let verdict = match self.job.verdict().cloned().unwrap_or(Verdict::Success) {
            Verdict::Success if !self.lost.is_empty() && self.log_errors == LogErrors::Fail => {
                Verdict::OutputLost
            }
            other => other,
        };
        Whole {
            attempt: self.attempt,
            members: self.job.members().to_vec(),
            verdict,
            lost: self.lost.all(),
            left_behind: self.left_behind,
        }
    }
}

/// Puts the whole job back into the queue.
fn ask_for_another_run(requeue: &Requeue, stream: &mut Stream<'_>) {
    let mut command = Command::new(&requeue.command[0]);
    if let Err(why) = run_with_limit(command.args(&requeue.command[1..]), REQUEUE_LIMIT) {
        stream.emit(RunEvent::NotRequeued { job: requeue.job.clone(), why: why.to_string() });
    }
}
