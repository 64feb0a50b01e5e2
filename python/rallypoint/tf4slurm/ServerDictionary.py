"""The dictionary of a distributed TensorFlow server, from a Slurm step and the user's own list of roles."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import Dict, List, Optional, Sequence, Tuple

from .. import Roster, resolve
from .._agreed import agreed
from .._names import tell_if_unknown
from .._rallypoint import HeldPort
from ..errors import AddressError, AllocationError, MissingVariable

# The site's rule for InfiniBand: behind each host's name, or a substitution as in sed.
IB_SUFFIX = "RALLYPOINT_IB_SUFFIX"
IB_MAP = "RALLYPOINT_IB_MAP"
# Where the kernel lists network interfaces, and what it calls InfiniBand (ARPHRD_INFINIBAND).
INTERFACES = "/sys/class/net"
INFINIBAND = "32"

# Held until this process ends: TensorFlow's server listens beside the holder.
_held: List[HeldPort] = []


def GetServerDictionary(
    ListOfTFTasks: Sequence[str],
    InfiniBand: Optional[bool] = None,
    *,
    InfinyBand: Optional[bool] = None,
    interface: Optional[str] = None,
    host_suffix: Optional[str] = None,
    host_map: Optional[str] = None,
    meet: Optional[str] = None,
    timeout: float = 600.0,
) -> Tuple[Dict[str, List[str]], str, int]:
    """`(dictionary, task_type, task_index)` for this task of the step.

    `ListOfTFTasks` has a role for each rank: `["ps", "worker", "worker"]`. Ports are those that Slurm reserved for
    the step (`srun --resv-ports`); where it did not, each task holds a free one and tells it to the others. Under
    `rallypoint run`, with or without Slurm, the dictionary is what was agreed on there. With `meet` (`"auto"`, a
    directory that all see, or `host:port`) the tasks meet in any case, and tell each other addresses that work: for
    machines that are not known by the names that Slurm has for them.

    With `InfiniBand` the addresses are those of that network: by the site's rule (`host_suffix`, `host_map`, or
    RALLYPOINT_IB_SUFFIX and RALLYPOINT_IB_MAP), or each task's own interface (`interface`, or the first one of that
    kind). With None it is used where the site has a rule. `InfinyBand` is the same by its old spelling.
    """
    if InfiniBand is None:
        InfiniBand = InfinyBand
    roles = list(ListOfTFTasks)
    started = agreed(os.environ)
    if started is not None:
        started.expect(Counter(roles))
        if InfiniBand:
            _to_stderr("the addresses are those of `rallypoint run`, whose --interface and --host-map choose the network")
        return {"ps": [], "worker": [], **started.cluster}, started.role, started.task_index
    host_suffix, host_map = host_suffix or os.environ.get(IB_SUFFIX), host_map or os.environ.get(IB_MAP)
    if InfiniBand is False:
        interface = host_suffix = host_map = None
    elif InfiniBand and not (interface or host_suffix or host_map):
        interface = infiniband_interface()
    try:
        plan = resolve(roles, on="slurm")
    except AllocationError as error:
        raise MissingVariable(error.problem, hint=error.hint) from error
    if plan.me is None:
        raise MissingVariable("SLURM_PROCID of a step is not set", hint="start it with srun")
    roster: Roster
    if plan.ports is not None and interface is None and meet is None:
        roster = plan.static_roster(host_suffix=host_suffix, host_map=host_map)
        tell_if_unknown(roster, _to_stderr)
    else:
        roster, held = plan.meet(
            meet or "auto",
            timeout=timeout,
            interface=interface,
            host_suffix=host_suffix,
            host_map=host_map,
            say=_to_stderr,
        )
        held.hand_over()
        _held.append(held)
    dictionary: Dict[str, List[str]] = {"ps": [], "worker": []}
    for member, address in zip(roster.members, roster.addresses):
        dictionary.setdefault(member.role, []).append(address)
    me = roster.me
    assert me is not None, "a roster that was met knows its own member"
    return dictionary, me.role, me.index


def infiniband_interface() -> str:
    """The first InfiniBand interface of this machine, by what the kernel says it is."""
    names = sorted(os.listdir(INTERFACES)) if os.path.isdir(INTERFACES) else []
    for name in names:
        try:
            with open(os.path.join(INTERFACES, name, "type")) as kind:
                if kind.read().strip() == INFINIBAND:
                    return name
        except OSError:
            continue
    raise AddressError(
        f"no interface of this machine is InfiniBand; there are {', '.join(names) or 'none'}",
        hint=f"give interface, host_suffix or host_map, set {IB_SUFFIX} or {IB_MAP} to the site's rule, or InfiniBand=False",
    )


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"rallypoint: {line}\n")
