"""From a batch allocation to a running training cluster, and a clean end.

A job, all of it on this machine or in this allocation::

    import rallypoint

    outcome = rallypoint.run(["python", "train.py"], ps=1, workers=2)
    print(outcome.verdict, outcome.first_failure)

The plan of this allocation, and this process's place in it::

    plan = rallypoint.resolve({"ps": 1, "worker": 3})
    if plan.me is not None:
        print(plan.me.role, plan.me.index, plan.me.devices)

TensorFlow's resolvers are in `rallypoint.tensorflow`, session hooks in `rallypoint.hooks`, the interface of
tf4slurm in `rallypoint.tf4slurm`. None of them is imported here, nor is any framework.
"""

from __future__ import annotations

import os

from . import errors
from ._rallypoint import (
    HeldPort,
    Member,
    Plan,
    Roster,
    __version__,
    expand_hostlist,
    fold_hostlist,
    own_address,
    port_in_use,
)
from ._rallypoint import hold_port as _hold_port
from ._rallypoint import resolve as _resolve
from .errors import RallypointError

# `typing` would take longer to import than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Mapping, Optional, Sequence, Tuple, Union

    from ._outcome import Event, MemberOutcome, Outcome
    from ._run import Job, run, start

    Jobs = Union[Mapping[str, int], Sequence[str], str]
    PortRange = Union[Tuple[int, int], Sequence[int], str]

__all__ = [
    "Event",
    "HeldPort",
    "Job",
    "Member",
    "MemberOutcome",
    "Outcome",
    "Plan",
    "RallypointError",
    "Roster",
    "__version__",
    "errors",
    "expand_hostlist",
    "fold_hostlist",
    "hold_port",
    "own_address",
    "port_in_use",
    "resolve",
    "run",
    "start",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        # What runs jobs, and all that it imports, comes with the first use of it.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _run

        value = globals()[name] = getattr(_run, name)
        return value

    def __dir__() -> Sequence[str]:
        return sorted({*globals(), *__all__})


def resolve(
    jobs: Optional[Jobs] = None,
    *,
    on: str = "auto",
    environ: Optional[Mapping[str, str]] = None,
    place: str = "pack",
    gpus_per_node: Optional[int] = None,
    gpus_per_task: Optional[int] = None,
    ps_gpus: int = 0,
    bind_gpus: bool = True,
    cpus_per_task: Optional[int] = None,
) -> Plan:
    """The plan of this allocation; `plan.me` is this process.

    `jobs` are counts by role (`{"ps": 1, "worker": 3}`, dealt over the ranks by name), one role per rank
    (`["ps", "worker", "worker"]` or `"ps,worker*2"`), or None: all are workers. `on` is the scheduler to
    believe in: auto, slurm, htcondor or local. `environ` are the variables of another process, such as a
    captured job's; by default they are this process's own. `place="spread"` puts parameter servers on
    different hosts.
    """
    counts, roles = split_jobs(jobs)
    variables = dict(os.environ if environ is None else environ)
    return _resolve(
        counts,
        roles,
        on=on,
        variables=variables,
        here=environ is None,
        place=place,
        gpus_per_node=gpus_per_node,
        gpus_per_task=gpus_per_task,
        ps_gpus=ps_gpus,
        bind_gpus=bind_gpus,
        cpus_per_task=cpus_per_task,
    )


def split_jobs(jobs: Optional[Jobs]) -> Tuple[Optional[dict[str, int]], Optional[str]]:
    """Counts by role, or a list of roles as text."""
    if jobs is None:
        return None, None
    if isinstance(jobs, str):
        return None, jobs
    if hasattr(jobs, "items"):
        return {str(role): int(count) for role, count in jobs.items()}, None
    return None, ",".join(jobs)


def hold_port(range: Optional[PortRange] = None, *, port: Optional[int] = None) -> HeldPort:  # noqa: A002
    """Holds a free port until a server takes it over::

        with rallypoint.hold_port() as held:
            announce(held.port)  # nobody else can have it
            held.hand_over()  # from here on a server can
            server = tf.distribute.Server({"ps": [f"localhost:{held.port}"]}, job_name="ps", task_index=0)

    `range` has the ports that will do: `(20000, 20999)`, `range(20000, 21000)` or `"20000-20999"`. `port` is the only
    one that will.
    """
    bounds: Optional[Tuple[int, int]] = None
    if isinstance(range, str):
        first, dash, last = range.partition("-")
        bounds = (int(first), int(last if dash else first))
    elif range:
        bounds = (range[0], range[-1])
    return _hold_port(bounds, port=port)
