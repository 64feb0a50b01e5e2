//! Nobody has written anything for a while: what is known, and what it may be.
//!
//! The usual hangs of distributed training are silent: a role that was forgotten, a member that everyone waits for.
//! So the leader says something, once after a minute without any output and then more and more seldom; training
//! that is silent on purpose is told three times in its life.

use crate::framework::Framework;
use crate::job::Job;
use crate::plan::Plan;
use crate::rendezvous::describe;
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
const PAGE: &str = "docs/guides/it-hangs.md";

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

    /// What to say about it.
    pub(super) fn lines(
        &self,
        plan: &Plan,
        job: &Job,
        framework: &dyn Framework,
        lasts: Duration,
        now: Instant,
    ) -> Vec<String> {
        let all: Vec<View> = (0..plan.world())
            .map(|rank| View {
                rank,
                started: job.members()[rank as usize].pid.is_some(),
                alive: job.is_alive(rank),
                listens: job.has_listened(rank),
                wrote: self.last[rank as usize].map(|at| now.saturating_duration_since(at)),
            })
            .collect();
        lines(plan, framework, &all, lasts)
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

/// What is known, what it may be, and where to read on.
fn lines(plan: &Plan, framework: &dyn Framework, all: &[View], lasts: Duration) -> Vec<String> {
    let some = |is_it: &dyn Fn(&View) -> bool| -> Vec<u32> {
        all.iter().filter(|view| is_it(view)).map(|view| view.rank).collect()
    };
    let mut lines = vec![format!("no member has written anything for {}", time(lasts))];
    let mut know = |what: &str, ranks: &[u32]| {
        if !ranks.is_empty() {
            let who = if ranks.len() == all.len() { "all members".to_owned() } else { describe(plan, ranks) };
            lines.push(format!("  {what}: {who}"));
        }
    };
    know("not started", &some(&|view| view.alive && !view.started));
    know("ended", &some(&|view| !view.alive));
    know("never wrote anything", &some(&|view| view.wrote.is_none()));
    let tensorflow = framework.has_servers();
    let deaf = some(&|view| view.alive && view.started && !view.listens);
    if tensorflow {
        know("listening at their addresses", &some(&|view| view.alive && view.listens));
        know("running, and not listening", &deaf);
    }
    if let Some(last) = all.iter().filter(|view| view.wrote.is_some()).min_by_key(|view| view.wrote) {
        let ago = time(last.wrote.unwrap_or_default());
        lines.push(format!("  last to write: {}, {ago} ago", describe(plan, &[last.rank])));
    }
    let may_be = suspicions(plan, tensorflow, all, !deaf.is_empty());
    lines.extend(may_be.into_iter().map(|suspicion| format!("  it may be {suspicion}")));
    lines.push(format!("  or nothing is wrong, and it computes; if not, read {PAGE}"));
    lines
}

fn suspicions(plan: &Plan, tensorflow: bool, all: &[View], some_are_deaf: bool) -> Vec<&'static str> {
    let has = |role: Role| plan.members().iter().any(|member| member.role == role);
    let some_have_ended = all.iter().any(|view| !view.alive);
    let mut found = Vec::new();
    if some_have_ended && tensorflow && has(Role::Ps) {
        found.push(
            "that somebody waits for a member that has ended; hint: --stand-in on with --tensorflow DIR, or --until first",
        );
    } else if some_have_ended {
        found.push("that somebody waits for a member that has ended; hint: --until first");
    }
    if tensorflow && some_are_deaf && all.len() > 1 {
        found.push(
            "that all others wait for those who do not listen: do they still load, or wait themselves?",
        );
    }
    // Whoever has ended has trained, or failed: a role that was forgotten lets nobody come so far.
    let may_be_forgotten = tensorflow && !has(Role::Chief) && !some_are_deaf && !some_have_ended;
    if may_be_forgotten && has(Role::Ps) {
        found.push("a coordinator of TensorFlow 2 without a chief: then all members serve, and nobody trains; hint: --chief");
    }
    if may_be_forgotten && !has(Role::Ps) {
        found.push("a program of TensorFlow 1 without parameter servers; hint: --ps 1");
    }
    found.push("what Python keeps in its buffer; hint: PYTHONUNBUFFERED=1");
    found
}

/// `60 s`, `5 min`
fn time(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds => format!("{} min", seconds / 60),
    }
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

    fn view(roles: &str, framework: &dyn Framework, change: impl Fn(&mut View)) -> String {
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
        lines(&plan, framework, &views, Duration::from_secs(60)).join("\n")
    }

    #[test]
    fn roles_that_may_have_been_forgotten() {
        let text = view("ps,worker*2", &TensorFlow, |_| {});
        assert_eq!(
            text,
            "no member has written anything for 60 s\n  \
             never wrote anything: all members\n  \
             listening at their addresses: all members\n  \
             it may be a coordinator of TensorFlow 2 without a chief: then all members serve, and nobody trains; hint: --chief\n  \
             it may be what Python keeps in its buffer; hint: PYTHONUNBUFFERED=1\n  \
             or nothing is wrong, and it computes; if not, read docs/guides/it-hangs.md"
        );
        assert!(view("worker*2", &TensorFlow, |_| {}).contains("hint: --ps 1"));
        let complete = view("chief,ps,worker", &TensorFlow, |_| {});
        assert!(!complete.contains("--chief") && !complete.contains("--ps"), "{complete}");
    }

    #[test]
    fn who_does_not_listen_and_who_has_ended() {
        let deaf = view("ps,worker*2", &TensorFlow, |view| view.listens = view.rank != 2);
        assert!(deaf.contains("running, and not listening: worker 1 (rank 2, n1)"), "{deaf}");
        assert!(deaf.contains("wait for those who do not listen") && !deaf.contains("--chief"), "{deaf}");
        let ended = view("ps,worker*2", &TensorFlow, |view| {
            view.alive = view.rank != 1;
            view.wrote = (view.rank == 1).then(|| Duration::from_secs(150));
        });
        assert!(ended.contains("ended: worker 0 (rank 1, n1)"), "{ended}");
        assert!(ended.contains("last to write: worker 0 (rank 1, n1), 2 min ago"), "{ended}");
        let suspicions: Vec<&str> =
            ended.lines().filter_map(|line| line.strip_prefix("  it may be ")).collect();
        assert_eq!(
            suspicions,
            [
                "that somebody waits for a member that has ended; hint: --stand-in on with --tensorflow DIR, or --until first",
                "what Python keeps in its buffer; hint: PYTHONUNBUFFERED=1",
            ],
            "one that has ended has had its chief"
        );
        let mirrored = view("worker*2", &TensorFlow, |view| view.alive = view.rank != 1);
        assert!(
            mirrored.contains("that has ended; hint: --until first") && !mirrored.contains("--ps"),
            "{mirrored}"
        );
        // Torch's ranks listen nowhere but the first.
        let torch = view("worker*2", &Torch, |view| view.listens = view.rank == 0);
        assert!(!torch.contains("listen") && !torch.contains("--ps"), "{torch}");
    }
}
