"""`SlurmClusterResolver` with TensorFlow's interface, and without its faults.

`docs/guides/slurm-resolver.md` shows case by case where the results differ, and why.
"""

from __future__ import annotations

import os
import socket
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from .. import _gpus, _rallypoint
from ..errors import AllocationError, HostListError, MissingVariable, PlanError, PortError, RallypointError, RoleError
from .base import Resolver


def expand_hostlist(hostlist: str) -> List[str]:
    """`'n[1-2],m5'` is `['n1', 'n2', 'm5']`; the order is Slurm's."""
    try:
        # A comma at the end is no name.
        return _rallypoint.expand_hostlist(hostlist.rstrip(","))
    except HostListError as error:
        raise HostListError(f'Invalid hostlist format "{hostlist}": {error.problem}', hint=error.hint) from error


def expand_tasks_per_node(tasks_per_node: str) -> List[int]:
    """`'3(x2),2,1'` is `[3, 3, 2, 1]`."""
    try:
        return _rallypoint.expand_counts(tasks_per_node)
    except HostListError as error:
        raise HostListError(
            f'Invalid tasks-per-node list format "{tasks_per_node}": {error.problem}', hint=error.hint
        ) from error


def get_num_gpus() -> int:
    """How many GPUs this process may see; none is a normal answer."""
    hosts = [socket.gethostname()]
    return len(_rallypoint.slurm_step(_without_step(_gpus.given_environ()), 0, hosts, [1], True).gpus)


class SlurmClusterResolver(Resolver):
    """The cluster of a Slurm step, from its variables alone.

    Takes the place of `tf.distribute.cluster_resolver.SlurmClusterResolver`. `jobs` are dealt over the ranks by
    name; hosts stay in Slurm's order; a rank is where Slurm put it, whatever the layout; GPUs are those of the
    mask that Slurm gave. `_resolve_own_rank`, `_resolve_num_tasks`, `_resolve_hostlist` and
    `_resolve_task_configuration` can be overridden to take the same facts from elsewhere.
    """

    def __init__(
        self,
        jobs: Optional[Mapping[str, int]] = None,
        port_base: int = 8888,
        gpus_per_node: Optional[int] = None,
        gpus_per_task: Optional[int] = None,
        tasks_per_node: Union[None, int, Mapping[str, int]] = None,
        auto_set_gpu: bool = True,
        rpc_layer: Optional[str] = "grpc",
    ) -> None:
        self._rank = self._resolve_own_rank()
        self._jobs = {"worker": self._resolve_num_tasks()} if jobs is None else jobs
        self._port_base = port_base
        self._auto_set_gpu = auto_set_gpu
        self.rpc_layer = rpc_layer
        self._task_configuration = self._configuration(tasks_per_node)
        step = self._step(given=tasks_per_node is not None, probe=gpus_per_node is None)
        self._local_ranks = step.local_ranks

        wanted = sum(self._jobs.values())
        if wanted != step.world:
            raise RoleError(f"Requested {wanted} tasks but only {step.world} were assigned.")
        most = max(self._task_configuration.values())
        place = step.place(self._rank)
        if place is None:
            raise AllocationError(f"rank {self._rank} is outside of the step's {step.world} tasks")
        host, local_rank = place
        self._share_gpus(step, local_rank, most, gpus_per_node, gpus_per_task)

        if not 0 < port_base <= 65536 - most:
            raise PortError(f"port {port_base + most - 1} is beyond 65535", hint="lower port_base=")
        self._cluster_allocation = {}
        self.task_type = self.task_id = None
        first = 0
        for task_type, count in sorted(self._jobs.items()):
            self._cluster_allocation[task_type] = step.addresses(first, count, port_base)
            if first <= self._rank < first + count:
                self.task_type, self.task_id = task_type, self._rank - first
            first += count
        self._held = _hold_own_port(host, port_base + local_rank)

    def _resolve_own_rank(self) -> int:
        """The rank of this task, from 0 to the number of tasks - 1."""
        return _number("SLURM_PROCID")

    def _resolve_num_tasks(self) -> int:
        """The number of tasks of the step."""
        return _number("SLURM_STEP_NUM_TASKS")

    def _resolve_hostlist(self) -> List[str]:
        """The hosts of the step, in Slurm's order."""
        return expand_hostlist(_variable("SLURM_STEP_NODELIST"))

    def _resolve_task_configuration(self) -> Dict[str, int]:
        """The number of tasks of each host, in Slurm's order."""
        hosts = self._resolve_hostlist()
        counts = expand_tasks_per_node(_variable("SLURM_STEP_TASKS_PER_NODE"))
        if len(hosts) != len(counts):
            raise AllocationError(f"{len(hosts)} hosts in SLURM_STEP_NODELIST, but SLURM_STEP_TASKS_PER_NODE has {len(counts)}")
        return dict(zip(hosts, counts))

    def cluster_spec(self) -> Any:
        """Everybody's address. Shows this process its GPUs alone, unless `auto_set_gpu` is off."""
        if self._auto_set_gpu:
            _gpus.show_only(self._own_gpus)
        return super().cluster_spec()

    def num_accelerators(
        self, task_type: Optional[str] = None, task_id: Optional[int] = None, config_proto: Any = None
    ) -> Dict[str, int]:
        """`{'GPU': n}` of a task; each has the same number."""
        own = (task_type, task_id) in ((None, None), (self.task_type, self.task_id))
        return {"GPU": len(self._own_gpus) if own else self._gpus_per_task}

    def _configuration(self, given: Union[None, int, Mapping[str, int]]) -> Dict[str, int]:
        if given is None:
            return dict(self._resolve_task_configuration())
        if not isinstance(given, Mapping):
            return {host: int(given) for host in self._resolve_hostlist()}
        # A dictionary is no order of ranks; the step's list of hosts is.
        try:
            order = {host: number for number, host in enumerate(self._resolve_hostlist())}
        except RallypointError:
            order = {}
        if all(host in order for host in given):
            return {host: given[host] for host in sorted(given, key=order.__getitem__)}
        try:
            hosts = _rallypoint.expand_hostlist(_rallypoint.fold_hostlist(list(given), keep_order=False))
        except HostListError:
            hosts = sorted(given)
        return {host: given[host] for host in hosts}

    @property
    def _gpu_allocation(self) -> List[str]:
        """Every task's mask; of those that Slurm has bound, only this task's own is known."""
        if self._shared_gpus is None:
            masks = [""] * len(self._local_ranks())
            masks[self._rank] = ",".join(self._own_gpus)
            return masks
        return [",".join(self._share(number)) for number in self._local_ranks()]

    def _share(self, local_rank: int) -> List[str]:
        first = local_rank * self._gpus_per_task
        return (self._shared_gpus or [])[first : first + self._gpus_per_task]

    def _step(self, given: bool, probe: bool) -> _rallypoint.Step:
        """Where each rank is, and this task's GPUs."""
        hosts, counts = list(self._task_configuration), list(self._task_configuration.values())
        if not counts or sum(counts) < 1 or min(counts) < 0:
            raise AllocationError(f"no tasks in {self._task_configuration}")
        environ = _gpus.given_environ()
        overridden = any(getattr(type(self), name) is not method for name, method in _EXTENSION_POINTS.items())
        if not overridden:
            try:
                step = _rallypoint.slurm_step(environ, self._rank, hosts, counts, probe)
            except AllocationError:
                if not given:
                    raise
            else:
                if step.is_placed:
                    return step
                if not given:
                    raise AllocationError(
                        "the step's variables do not tell which host each rank is on",
                        hint="let the members meet, with rallypoint.tensorflow.ClusterResolver or `rallypoint run`",
                    )
        # Told by the user or a subclass: one host after the other, and what Slurm says of its layout is not asked.
        return _rallypoint.slurm_step(_without_step(environ), self._rank, hosts, counts, probe)

    def _share_gpus(
        self, step: _rallypoint.Step, local_rank: int, most: int, per_node: Optional[int], per_task: Optional[int]
    ) -> None:
        gpus = step.gpus
        self._shared_gpus: Optional[List[str]] = None
        if step.bound:
            # Slurm has dealt them out already.
            if per_task is not None and per_task > len(gpus):
                raise PlanError(
                    f"Requested more GPUs per node than available. This task was bound to {len(gpus)}, not {per_task}."
                )
            self._own_gpus = gpus if per_task is None else gpus[:per_task]
            self._gpus_per_task = len(self._own_gpus)
            self._gpus_per_node = per_node if per_node is not None else self._gpus_per_task * most
            return
        if per_node is None:
            per_node = len(gpus)
        elif not gpus:
            # Nothing names them: the user's count, from 0 on.
            gpus = [str(number) for number in range(per_node)]
        elif per_node > len(gpus):
            raise PlanError(
                f"Requested more GPUs per node than available. This host has {len(gpus)} ({','.join(gpus)}), "
                f"not {per_node}."
            )
        if per_task is None:
            # With fewer GPUs than tasks, the first ones have one each.
            per_task = max(per_node // most, min(per_node, 1))
        elif most * per_task > per_node:
            raise PlanError(
                f"Requested more GPUs per node than available. {most} tasks with {per_task} each need "
                f"{most * per_task}, and there are {per_node}."
            )
        self._gpus_per_node, self._gpus_per_task = per_node, per_task
        self._shared_gpus = gpus[:per_node]
        self._own_gpus = self._share(local_rank)


# What they are when nobody overrides them.
_EXTENSION_POINTS = {
    name: getattr(SlurmClusterResolver, name)
    for name in ("_resolve_own_rank", "_resolve_num_tasks", "_resolve_hostlist", "_resolve_task_configuration")
}


def _variable(name: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise MissingVariable(
            f"{name} not found in environment. Not running inside a SLURM step?", hint="start it with srun"
        ) from None


def _number(name: str) -> int:
    value = _variable(name)
    try:
        return int(value)
    except ValueError:
        raise AllocationError(f"{name}={value} is not a number") from None


def _without_step(environ: Mapping[str, str]) -> Dict[str, str]:
    """Without what Slurm says of the layout; what it says of GPUs stays."""
    return {name: value for name, value in environ.items() if not name.startswith("SLURM") or "GPU" in name}


# Ports of this process, by process: a forked child holds its own.
_held_ports: Dict[Tuple[int, int], _rallypoint.HeldPort] = {}


def _hold_own_port(host: str, port: int) -> Optional[_rallypoint.HeldPort]:
    """Holds this task's port until its server starts, where `host` is this machine by its own name."""
    here = socket.gethostname()
    if host not in (here, here.partition(".")[0]) and host.partition(".")[0] != here:
        return None
    key = (os.getpid(), port)
    if key not in _held_ports:
        try:
            held = _rallypoint.hold_port(port=port)
        except PortError as error:
            if _listens_itself(port):
                return None
            raise PortError(
                f"port {port} of this host is somebody else's: {error.problem}",
                hint="choose another port_base=, or take rallypoint.tensorflow.ClusterResolver, which finds free ports",
            ) from error
        # From here on TensorFlow's server can listen there; a port given out by the system it is not.
        held.hand_over()
        _held_ports[key] = held
    return _held_ports[key]


def _listens_itself(port: int) -> bool:
    """True if this very process listens there already."""
    own = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        try:
            with open(table) as lines:
                rows = [line.split() for line in lines]
        except OSError:
            continue
        for row in rows[1:]:
            if int(row[1].rpartition(":")[2], 16) == port and row[3] == "0A" and f"socket:[{row[9]}]" in own:
                return True
    return False
