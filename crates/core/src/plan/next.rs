//! From a plan to the next one. What is learned after planning never changes a plan; it makes another, by name.

use super::{JobSpec, Plan, PlanError, deal};
use crate::allocation::{Allocation, Host, HostGpus, Place, Slot};
use crate::roles::{RoleList, RoleRequest};
use std::collections::HashMap;
use std::time::SystemTime;

impl Plan {
    /// A plan for tasks that may become other than the allocation tells, as `--srun-args` can make them: of what was asked
    /// for where that fits, else of workers alone. The tasks will know; then `with_roles` plans what was asked for.
    pub(crate) fn foreseen(allocation: Allocation, spec: &JobSpec) -> Result<Plan, PlanError> {
        let dealt = deal(&allocation, spec).or_else(|_| deal(&allocation, &JobSpec::default()));
        let (members, notes) = dealt?;
        let allocation = Allocation { slots: Vec::new(), ..allocation };
        Ok(Plan { allocation, spec: spec.clone(), members, notes }.unplaced())
    }

    /// Nobody knows where the members will be.
    #[must_use]
    pub(crate) fn unplaced(mut self) -> Plan {
        self.members.iter_mut().for_each(|member| member.place = None);
        self
    }

    /// The first member, usually the only one, is number `index` of its role: a `TF_CONFIG` written elsewhere says so.
    #[must_use]
    #[expect(clippy::wrong_self_convention, reason = "it makes the next plan of this one, as all here do")]
    pub(crate) fn as_task(mut self, index: u32) -> Plan {
        self.members.iter_mut().take(1).for_each(|member| member.index = index);
        self
    }

    /// These roles instead of those that were asked for, for a step that this process is no task of. Where its tasks are,
    /// they tell when they meet.
    pub(crate) fn with_roles(&self, roles: RoleList) -> Result<Plan, PlanError> {
        let slots = vec![Slot { place: None, cpus: None }; roles.count() as usize];
        let allocation = Allocation { slots, me: None, bound: None, ..self.allocation.clone() };
        Plan::of(allocation, JobSpec { roles: RoleRequest::List(roles), ..self.spec.clone() })
    }

    /// The attempt that those who have met agree on.
    #[must_use]
    pub(crate) fn in_attempt(mut self, attempt: u32) -> Plan {
        self.allocation.attempt = attempt;
        self
    }

    /// With the deadline that somebody has asked the scheduler for. One that its variables told stays.
    #[must_use]
    pub(crate) fn with_deadline(mut self, asked: Option<SystemTime>) -> Plan {
        self.allocation.deadline = self.allocation.deadline.or(asked);
        self
    }

    /// As the member of this rank sees it, or somebody who is none.
    #[must_use]
    pub(crate) fn seen_from(mut self, me: Option<u32>) -> Plan {
        self.allocation.me = me;
        self
    }

    /// The same members where they truly are. A scheduler's host keeps the GPUs that it was told to have.
    #[must_use]
    pub(crate) fn placed(mut self, hosts: Vec<String>, places: &[Place]) -> Plan {
        let told = std::mem::take(&mut self.allocation.hosts).into_iter();
        let mut told: HashMap<String, HostGpus> = told.map(|host| (host.name, host.gpus)).collect();
        let host = |name: String| Host { gpus: told.remove(&name).unwrap_or(HostGpus::Unknown), name };
        self.allocation.hosts = hosts.into_iter().map(host).collect();
        for (member, place) in self.members.iter_mut().zip(places) {
            member.place = Some(*place);
        }
        self
    }

    /// Planned again for plain machines that have met: each knows its own GPUs and CPUs alone, and only now who shares
    /// them. `cpus` are for each member here.
    pub(crate) fn on_machines(
        self,
        hosts: Vec<String>,
        places: &[Place],
        cpus: Option<u32>,
    ) -> Result<Plan, PlanError> {
        let Plan { mut allocation, spec, members, .. } = self;
        let here = allocation.me.and_then(|rank| places.get(rank as usize)).map(|place| place.host);
        let own = allocation.hosts.into_iter().next().map_or(HostGpus::Unknown, |host| host.gpus);
        allocation.hosts = hosts.into_iter().map(Host::new).collect();
        if let Some(host) = here.and_then(|here| allocation.hosts.get_mut(here as usize)) {
            host.gpus = own;
        }
        let slot = |place: Option<Place>| {
            let is_here = here.is_some() && place.map(|place| place.host) == here;
            Slot { place, cpus: cpus.filter(|_| is_here) }
        };
        allocation.slots = (0..members.len()).map(|rank| slot(places.get(rank).copied())).collect();
        Plan::of(allocation, spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::hypothetical::{Hypothesis, allocation};

    fn spec(roles: &str) -> JobSpec {
        JobSpec { roles: RoleRequest::List(roles.parse().unwrap()), ..JobSpec::default() }
    }

    fn two_hosts(roles: &str) -> Allocation {
        let nodes = Hypothesis {
            nodes: "a,b".to_owned(),
            tasks_per_node: None,
            gpus_per_node: 2,
            cpus_per_task: None,
        };
        allocation(&nodes, &spec(roles).roles).unwrap()
    }

    fn hosts(plan: &Plan) -> Vec<Option<&str>> {
        plan.members().iter().map(|member| plan.host(member)).collect()
    }

    #[test]
    fn what_does_not_fit_yet_is_foreseen_as_workers_and_kept() {
        let asked = JobSpec { cpus_per_task: Some(3), ..spec("ps,worker*5") };
        let plan = Plan::foreseen(two_hosts("worker*2"), &asked).unwrap();
        assert_eq!(plan.role_counts(), [(crate::roles::Role::Worker, 2)]);
        assert_eq!(hosts(&plan), [None, None]);
        let step = plan.with_roles("ps,worker*5".parse().unwrap()).unwrap();
        assert_eq!(step.world(), 6);
        assert!(step.members().iter().all(|member| member.cpus == Some(3)), "what was asked for holds");
    }

    #[test]
    fn members_are_placed_where_they_truly_are() {
        let plan = Plan::new(two_hosts("worker*2"), &spec("worker*2")).unwrap();
        assert_eq!(hosts(&plan), [Some("a"), Some("b")]);
        let places = crate::allocation::places([0, 1], 2);
        let plan = plan.placed(vec!["b".to_owned(), "a".to_owned()], &places);
        assert_eq!(hosts(&plan), [Some("b"), Some("a")]);
        let plan = plan.unplaced();
        assert_eq!(hosts(&plan), [None, None]);
    }

    #[test]
    fn a_deadline_that_is_known_stays() {
        let plan = Plan::new(two_hosts("worker*2"), &spec("worker*2")).unwrap();
        let (first, second) = (SystemTime::UNIX_EPOCH, SystemTime::now());
        let plan = plan.with_deadline(None).with_deadline(Some(first)).with_deadline(Some(second));
        assert_eq!(plan.in_attempt(2).deadline(), Some(first));
    }
}
