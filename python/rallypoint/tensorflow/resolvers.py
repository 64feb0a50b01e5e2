"""Resolvers whose members meet where hosts and ports are not known beforehand."""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple

from .. import Plan, Roster, _gpus, split_jobs
from .._agreed import agreed
from .._names import tell_if_unknown
from .._rallypoint import HeldPort, resolve
from ..errors import AllocationError, MeetingError
from .base import Resolver

if TYPE_CHECKING:
    from .. import Jobs


def to_stderr(line: str) -> None:
    """Where progress goes unless `progress` says otherwise."""
    sys.stderr.write(f"rallypoint: {line}\n")
    sys.stderr.flush()


class ClusterResolver(Resolver):
    """The cluster of this process, whoever runs it.

    Under `rallypoint run` it is the one that was agreed there. In a Slurm step with reserved ports, or with
    `port_base`, it follows from the step's variables. Everywhere else the members meet: each holds a free port,
    tells it to the others and waits for them, at most `timeout` seconds, while `progress` hears who is missing.
    The port stays this process's until its server starts.

    `jobs` are counts by role (`{"chief": 1, "ps": 1, "worker": 2}`) or one role per rank (`["ps", "worker"]`);
    with None all are workers. `meet` is where to meet: a directory that all see, or `host:port`. `rank` and `job`
    tell which member this is and which meeting, where nobody else does.
    """

    _on = "auto"

    def __init__(
        self,
        jobs: Optional[Jobs] = None,
        *,
        meet: Optional[str] = None,
        rank: Optional[int] = None,
        job: Optional[str] = None,
        timeout: float = 600.0,
        port_base: Optional[int] = None,
        port_range: Optional[Tuple[int, int]] = None,
        gpus_per_node: Optional[int] = None,
        gpus_per_task: Optional[int] = None,
        ps_gpus: int = 0,
        auto_set_gpu: bool = True,
        interface: Optional[str] = None,
        network: Optional[str] = None,
        host_suffix: Optional[str] = None,
        host_map: Optional[str] = None,
        rpc_layer: Optional[str] = "grpc",
        progress: Callable[[str], object] = to_stderr,
    ) -> None:
        self.rpc_layer = rpc_layer
        self._held: Optional[HeldPort] = None
        self._own_gpus: Optional[List[str]] = None
        counts, roles = split_jobs(jobs)
        environ = _gpus.given_environ()
        started = agreed(environ) if self._on == "auto" else None
        if started is not None:
            if counts is not None:
                started.expect(counts)
            self._cluster_allocation, self.task_type, self.task_id = started
            return
        plan = resolve(
            counts,
            roles,
            on=self._on,
            variables=environ,
            gpus_per_node=gpus_per_node,
            gpus_per_task=gpus_per_task,
            ps_gpus=ps_gpus,
        )
        address = {"interface": interface, "network": network, "host_suffix": host_suffix, "host_map": host_map}
        is_static = plan.scheduler == "slurm" and meet is None and (plan.ports is not None or port_base is not None)
        if is_static:
            roster = plan.static_roster(port_base, **address)
            tell_if_unknown(roster, progress)
        else:
            way, job = self._where(plan, meet, job)
            roster, self._held = plan.meet(
                way,
                rank=rank,
                job=job,
                timeout=timeout,
                port_base=port_base,
                port_range=port_range,
                say=progress,
                **address,
            )
        self._settle(roster)
        if auto_set_gpu and self._own_gpus is not None:
            _gpus.show_only(self._own_gpus)
        if self._held is not None:
            # TensorFlow's server can listen there from here on; nobody is given it by chance.
            self._held.hand_over()

    def num_accelerators(
        self, task_type: Optional[str] = None, task_id: Optional[int] = None, config_proto: Any = None
    ) -> Dict[str, int]:
        """`{'GPU': n}` of this process, or what TensorFlow itself finds where nobody told."""
        if self._own_gpus is None:
            return super().num_accelerators(task_type, task_id, config_proto)
        return {"GPU": len(self._own_gpus)}

    def release_port(self) -> None:
        """Gives the held port up; a server that listens there goes on."""
        if self._held is not None:
            self._held.release()

    def _settle(self, roster: Roster) -> None:
        me = roster.me
        if me is None:
            raise AllocationError("no variable tells which member this is", hint="start it with srun")
        self._cluster_allocation = roster.cluster()
        self.task_type, self.task_id, self._own_gpus = me.role, me.index, me.devices

    def _where(self, plan: Plan, meet: Optional[str], job: Optional[str]) -> Tuple[str, Optional[str]]:
        """Where to meet, and by which name; the schedulers have ways of their own."""
        if meet is not None:
            return meet, job
        if plan.scheduler == "local":
            return own_meeting_place(), job or default_job()
        return "auto", job


class LocalClusterResolver(ClusterResolver):
    """A cluster of processes on this machine, started in any order: in N terminals, say.

    Without `meet` the processes of one program of one user meet in a private folder.
    """

    _on = "local"


class HTCondorClusterResolver(ClusterResolver):
    """The cluster of an HTCondor job, vanilla (`queue N`) or parallel universe."""

    _on = "htcondor"


def own_meeting_place() -> str:
    """A folder of this user alone on this machine."""
    folder = Path(tempfile.gettempdir()) / f"rallypoint-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    owner = folder.lstat().st_uid
    if folder.is_symlink() or owner != os.getuid():
        raise MeetingError(f"{folder} belongs to user {owner}", hint="give meet=DIR, a folder of your own")
    return str(folder)


def default_job() -> str:
    """Tells the programs of one user apart: the script's name and place."""
    script = Path(sys.argv[0] or "python").resolve()
    return f"{script.stem}-{zlib.crc32(str(script).encode()):08x}"
