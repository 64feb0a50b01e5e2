from types import TracebackType
from typing import Callable, Optional, Sequence, Type, final

__all__ = [
    "Step",
    "expand_counts",
    "expand_hostlist",
    "fold_hostlist",
    "own_address",
    "reachable",
    "slurm_step",
    "Member",
    "Plan",
    "Roster",
    "gpu_masks",
    "resolve",
    "HeldPort",
    "hold_port",
    "port_in_use",
    "__version__",
]

__version__: str

@final
class Member:
    """One process of the training job."""

    @property
    def rank(self) -> int: ...
    @property
    def role(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def host(self) -> Optional[str]: ...
    @property
    def local_rank(self) -> Optional[int]: ...
    @property
    def devices(self) -> Optional[list[str]]: ...
    @property
    def cpus(self) -> Optional[int]: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Plan:
    """Every member with rank, role, index, host where known, devices and CPUs; no address."""

    @property
    def scheduler(self) -> str: ...
    @property
    def job(self) -> Optional[str]: ...
    @property
    def attempt(self) -> int: ...
    @property
    def world(self) -> int: ...
    @property
    def hosts(self) -> list[str]: ...
    @property
    def members(self) -> list[Member]: ...
    @property
    def me(self) -> Optional[Member]: ...
    @property
    def ports(self) -> Optional[list[int]]: ...
    @property
    def deadline(self) -> Optional[float]: ...
    @property
    def notes(self) -> list[str]: ...
    def to_json(self) -> str: ...
    def static_roster(
        self,
        port_base: Optional[int] = None,
        *,
        interface: Optional[str] = None,
        network: Optional[str] = None,
        host_suffix: Optional[str] = None,
        host_map: Optional[str] = None,
    ) -> Roster: ...
    def meet(
        self,
        way: str,
        *,
        rank: Optional[int] = None,
        job: Optional[str] = None,
        timeout: float = 600.0,
        port_base: Optional[int] = None,
        port_range: Optional[tuple[int, int]] = None,
        interface: Optional[str] = None,
        network: Optional[str] = None,
        host_suffix: Optional[str] = None,
        host_map: Optional[str] = None,
        say: Optional[Callable[[str], object]] = None,
    ) -> tuple[Roster, HeldPort]: ...

@final
class Roster:
    """A plan whose members all have an address."""

    @property
    def members(self) -> list[Member]: ...
    @property
    def me(self) -> Optional[Member]: ...
    @property
    def addresses(self) -> list[str]: ...
    def cluster(self) -> dict[str, list[str]]: ...
    def tf_config(self, rank: Optional[int] = None) -> str: ...

@final
class HeldPort:
    """A port that nobody else can have, until a server takes it over."""

    @property
    def port(self) -> int: ...
    @property
    def held(self) -> bool: ...
    def hand_over(self) -> None: ...
    def release(self) -> None: ...
    def __enter__(self) -> HeldPort: ...
    def __exit__(
        self,
        _kind: Optional[Type[BaseException]],
        _value: Optional[BaseException],
        _traceback: Optional[TracebackType],
        /,
    ) -> None: ...

@final
class Step:
    """Where Slurm put the ranks of a step, and this task's GPUs."""

    @property
    def gpus(self) -> list[str]: ...
    @property
    def bound(self) -> bool: ...
    @property
    def is_placed(self) -> bool: ...
    @property
    def world(self) -> int: ...
    def place(self, rank: int) -> Optional[tuple[str, int]]: ...
    def local_ranks(self) -> list[int]: ...
    def addresses(self, first: int, count: int, port_base: int) -> list[str]: ...

def resolve(
    jobs: Optional[dict[str, int]] = None,
    roles: Optional[str] = None,
    *,
    on: str = "auto",
    variables: dict[str, str],
    here: bool = True,
    place: str = "pack",
    gpus_per_node: Optional[int] = None,
    gpus_per_task: Optional[int] = None,
    ps_gpus: int = 0,
    bind_gpus: bool = True,
    cpus_per_task: Optional[int] = None,
) -> Plan: ...
def expand_hostlist(text: str) -> list[str]: ...
def fold_hostlist(names: Sequence[str], *, keep_order: bool = True) -> str: ...
def expand_counts(text: str) -> list[int]: ...
def slurm_step(
    variables: dict[str, str], rank: int, hosts: Sequence[str], counts: Sequence[int], here: bool
) -> Step: ...
def own_address(interface: Optional[str] = None, network: Optional[str] = None) -> str: ...
def reachable(addresses: Sequence[str], timeout: float) -> list[bool]: ...
def hold_port(range: Optional[tuple[int, int]] = None, *, port: Optional[int] = None) -> HeldPort: ...
def port_in_use(port: int) -> bool: ...
def gpu_masks() -> list[str]: ...
