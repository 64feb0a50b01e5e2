//! Nobody has written anything for a while: what is known, and what it may be.
//!
//! The usual hangs of distributed training are silent: a role that was forgotten, a member that everyone waits for.
//! So the leader says something, once after a minute without any output and then more and more seldom; training
//! that is silent on purpose is told three times in its life.

use crate::event::{LastWriter, Silent, Suspicion};
use crate::framework::Framework;
use crate::job::Job;
use crate::names::Names;
use crate::plan::Plan;
use crate::roles::Role;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long nobody must have written anything, the first time, the second, and any other.
const PATIENCE: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(5 * 60), Duration::from_secs(30 * 60)];
/// How often a follower looks whether its member has written, and how often it tells.
const LOOK: Duration = Duration::from_secs(5);
const TELL: Duration = Duration::from_secs(30);

/// When a member has last written something; its pumps keep it up to date.
pub(super) type LastOutput = Rc<Cell<Option<Instant>>>;

/// When all members have last written something, as far as the leader knows.
#[derive(Debug)]
pub(super) struct Silence {
    last: Vec<Option<Instant>>,
    /// When anybody did, or the start.
    since: Instant,
    told: usize,
    told_at: Instant,
    over: bool,
}

impl Silence {
    pub(super) fn new(world: usize, now: Instant) -> Silence {
        Silence { last: vec![None; world], since: now, told: 0, told_at: now, over: false }
    }

    pub(super) fn heard(&mut self, rank: u32, at: Instant) {
        self.last[rank as usize] = Some(at);
        self.since = self.since.max(at);
    }

    /// The job ends: nobody is expected to write any more.
    pub(super) fn over(&mut self) {
        self.over = true;
    }

    /// When it has lasted too long, if nobody writes until then.
    pub(super) fn next(&self) -> Option<Instant> {
        // The same silence is not told twice with the longest patience.
        let again = self.told < PATIENCE.len() || self.since > self.told_at;
        let patience = PATIENCE[self.told.min(PATIENCE.len() - 1)];
        (again && !self.over).then(|| self.since + patience)
    }

    /// How long it has lasted, if that is to be told now.
    pub(super) fn is_due(&mut self, now: Instant) -> Option<Duration> {
        self.next().filter(|at| *at <= now)?;
        self.told += 1;
        self.told_at = now;
        Some(now.saturating_duration_since(self.since))
    }

    /// What is known of it.
    pub(super) fn known(
        &self,
        plan: &Plan,
        job: &Job,
        framework: &dyn Framework,
        lasts: Duration,
        now: Instant,
    ) -> Silent {
        let all: Vec<View> = (0..plan.world())
            .map(|rank| View {
                rank,
                started: job.members()[rank as usize].pid.is_some(),
                alive: job.is_alive(rank),
                listens: job.has_listened(rank),
                wrote: self.last[rank as usize].map(|at| now.saturating_duration_since(at)),
            })
            .collect();
        known(plan, framework, &all, lasts)
    }
}

/// Tells the leader that a follower's member has written: at once after a pause, then now and then.
#[derive(Debug)]
pub(super) struct Reports {
    look_at: Instant,
    told: Option<Instant>,
}

impl Reports {
    pub(super) fn new(now: Instant) -> Reports {
        Reports { look_at: now + LOOK, told: None }
    }

    pub(super) fn next(&self) -> Instant {
        self.look_at
    }

    /// True if the leader is to be told now. `last` is when the member wrote.
    pub(super) fn is_due(&mut self, last: Option<Instant>, now: Instant) -> bool {
        if now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK;
        let news = last.is_some_and(|last| self.told.is_none_or(|told| last > told));
        let due = news && self.told.is_none_or(|told| now.saturating_duration_since(told) >= TELL);
        if due {
            self.told = Some(now);
        }
        due
    }
}

/// What is known of a member.
#[derive(Debug, Clone, Copy)]
struct View {
    rank: u32,
    started: bool,
    alive: bool,
    listens: bool,
    /// How long ago.
    wrote: Option<Duration>,
}

/// What is known, and what it may be.
fn known(plan: &Plan, framework: &dyn Framework, all: &[View], silent: Duration) -> Silent {
    let some = |is_it: &dyn Fn(&View) -> bool| -> Names {
        let ranks: Vec<u32> = all.iter().filter(|view| is_it(view)).map(|view| view.rank).collect();
        Names::of(plan, &ranks)
    };
    // Members of other frameworks listen nowhere, or only the first does.
    let listen = framework.has_servers();
    let not_listening = some(&|view| view.alive && view.started && !view.listens);
    let last = all.iter().filter(|view| view.wrote.is_some()).min_by_key(|view| view.wrote);
    Silent {
        silent,
        world: plan.world(),
        not_started: some(&|view| view.alive && !view.started),
        ended: some(&|view| !view.alive),
        never_wrote: some(&|view| view.wrote.is_none()),
        listening: listen.then(|| some(&|view| view.alive && view.listens)),
        last: last.map(|view| LastWriter {
            member: Names::of(plan, &[view.rank]),
            ago: view.wrote.unwrap_or_default(),
        }),
        suspicions: suspicions(plan, listen, all, !not_listening.is_empty()),
        not_listening: listen.then_some(not_listening),
    }
}

fn suspicions(plan: &Plan, tensorflow: bool, all: &[View], some_are_deaf: bool) -> Vec<Suspicion> {
    let has = |role: Role| plan.members().iter().any(|member| member.role == role);
    let some_have_ended = all.iter().any(|view| !view.alive);
    let mut found = Vec::new();
    if some_have_ended && tensorflow && has(Role::Ps) {
        found.push(Suspicion::WaitsForEndedServer);
    } else if some_have_ended {
        found.push(Suspicion::WaitsForEnded);
    }
    if tensorflow && some_are_deaf && all.len() > 1 {
        found.push(Suspicion::WaitsForListeners);
    }
    // Whoever has ended has trained, or failed: a role that was forgotten lets nobody come so far.
    let may_be_forgotten = tensorflow && !has(Role::Chief) && !some_are_deaf && !some_have_ended;
    if may_be_forgotten {
        found.push(if has(Role::Ps) { Suspicion::NoChief } else { Suspicion::NoParameterServers });
    }
    found.push(Suspicion::Buffered);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::{tensorflow::TensorFlow, torch::Torch};
    use crate::plan::JobSpec;
    use crate::roles::RoleRequest;
    use crate::scheduler::hypothetical::{Hypothesis, allocation};

    #[test]
    fn it_is_told_after_a_minute_then_more_and_more_seldom() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut silence = Silence::new(2, start);
        let due = |silence: &mut Silence, seconds| silence.is_due(after(seconds)).map(|time| time.as_secs());
        assert_eq!(due(&mut silence, 59), None);
        assert_eq!(due(&mut silence, 60), Some(60));
        assert_eq!(due(&mut silence, 61), None);
        assert_eq!(due(&mut silence, 299), None);
        assert_eq!(due(&mut silence, 300), Some(300));
        // Somebody wrote: it begins anew, and takes longer.
        silence.heard(1, after(400));
        assert_eq!(silence.next(), Some(after(400 + 1800)));
        silence.heard(0, after(390));
        assert_eq!(due(&mut silence, 2199), None);
        assert_eq!(due(&mut silence, 2200), Some(1800));
        assert_eq!(silence.next(), None, "the same silence");
        silence.heard(1, after(3000));
        assert_eq!(due(&mut silence, 4800), Some(1800));
        silence.heard(1, after(5000));
        silence.over();
        assert_eq!(due(&mut silence, 9000), None, "the job ends");
    }

    #[test]
    fn a_follower_tells_at_once_after_a_pause_and_seldom_otherwise() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut reports = Reports::new(start);
        assert!(!reports.is_due(None, after(5)));
        assert!(!reports.is_due(Some(after(6)), after(7)), "not looked yet");
        assert!(reports.is_due(Some(after(6)), after(10)));
        assert!(!reports.is_due(Some(after(6)), after(50)), "no news");
        assert!(reports.is_due(Some(after(51)), after(55)));
        assert!(!reports.is_due(Some(after(59)), after(60)), "told a moment ago");
        assert!(reports.is_due(Some(after(59)), after(85)));
    }

    fn view(roles: &str, framework: &dyn Framework, change: impl Fn(&mut View)) -> Silent {
        let roles = RoleRequest::List(roles.parse().unwrap());
        let nodes = Hypothesis {
            nodes: "n1".to_owned(),
            tasks_per_node: None,
            gpus_per_node: 0,
            cpus_per_task: None,
        };
        let allocation = allocation(&nodes, &roles).unwrap();
        let plan = Plan::new(allocation, &JobSpec { roles, ..JobSpec::default() }).unwrap();
        let views: Vec<View> = (0..plan.world())
            .map(|rank| {
                let mut view = View { rank, started: true, alive: true, listens: true, wrote: None };
                change(&mut view);
                view
            })
            .collect();
        known(&plan, framework, &views, Duration::from_secs(60))
    }

    #[test]
    fn roles_that_may_have_been_forgotten() {
        use Suspicion::{Buffered, NoChief, NoParameterServers};
        let no_chief = view("ps,worker*2", &TensorFlow, |_| {});
        assert_eq!(no_chief.suspicions, [NoChief, Buffered]);
        assert_eq!((no_chief.never_wrote.count(), no_chief.world), (3, 3));
        assert_eq!(no_chief.listening.map(|names| names.count()), Some(3));
        assert_eq!(view("worker*2", &TensorFlow, |_| {}).suspicions, [NoParameterServers, Buffered]);
        assert_eq!(view("chief,ps,worker", &TensorFlow, |_| {}).suspicions, [Buffered]);
    }

    #[test]
    fn who_does_not_listen_and_who_has_ended() {
        use Suspicion::{Buffered, WaitsForEnded, WaitsForEndedServer, WaitsForListeners};
        let deaf = view("ps,worker*2", &TensorFlow, |view| view.listens = view.rank != 2);
        assert_eq!(deaf.not_listening.unwrap().to_string(), "worker 1 (rank 2, n1)");
        assert_eq!(deaf.suspicions, [WaitsForListeners, Buffered]);
        let ended = view("ps,worker*2", &TensorFlow, |view| {
            view.alive = view.rank != 1;
            view.wrote = (view.rank == 1).then(|| Duration::from_secs(150));
        });
        assert_eq!(ended.ended.to_string(), "worker 0 (rank 1, n1)");
        let last = ended.last.unwrap();
        assert_eq!((last.member.to_string(), last.ago.as_secs()), ("worker 0 (rank 1, n1)".to_owned(), 150));
        assert_eq!(ended.suspicions, [WaitsForEndedServer, Buffered], "one that has ended has had its chief");
        let mirrored = view("worker*2", &TensorFlow, |view| view.alive = view.rank != 1);
        assert_eq!(mirrored.suspicions, [WaitsForEnded, Buffered]);
        // Torch's ranks listen nowhere but the first.
        let torch = view("worker*2", &Torch, |view| view.listens = view.rank == 0);
        assert_eq!((torch.listening, torch.not_listening, torch.suspicions), (None, None, vec![Buffered]));
    }
}
