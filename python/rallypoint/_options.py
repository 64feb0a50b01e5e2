"""The keywords of `run` and `start`: each is an option of the command `rallypoint run`."""

from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypedDict, Union

Path = Union[str, "os.PathLike[str]"]
Names = Union[str, Sequence[str]]


class Options(TypedDict, total=False):
    """What a job is, and how it runs. None is what the command does without the option."""

    # Who is who
    chief: Optional[bool]
    ps: Optional[int]
    workers: Union[int, str, None]
    evaluator: Optional[bool]
    roles: Optional[Names]
    place: Optional[str]
    # What they are
    framework: Optional[str]
    on: Optional[str]
    tf_config: Optional[Path]
    threads: Optional[bool]
    srun_args: Optional[Names]
    # How they meet
    meet: Optional[Path]
    rank: Optional[int]
    meet_timeout: Union[float, str, None]
    listen: Optional[str]
    job: Optional[str]
    # Where they listen
    port_base: Optional[int]
    port_range: Union[Tuple[int, int], Sequence[int], str, None]
    hand_over: Optional[str]
    interface: Optional[str]
    network: Optional[str]
    host_suffix: Optional[str]
    host_map: Optional[str]
    # When they end
    until: Optional[str]
    restart: Optional[Mapping[str, int]]
    tolerate: Optional[Names]
    requeue_on: Optional[int]
    grace: Union[float, str, None]
    # What is done to them on purpose
    rehearse: Optional[Names]
    # What they write
    log_dir: Optional[Path]
    tee: Optional[bool]
    quiet: Optional[bool]
    verbose: Optional[bool]
    prefix: Optional[str]
    log_errors: Optional[str]
    # Servers without Python
    serve: Optional[Names]
    tensorflow: Optional[Path]
    serve_config: Optional[Path]
    stand_in: Optional[bool]
    # What they have
    gpus_per_node: Optional[int]
    gpus_per_task: Optional[int]
    ps_gpus: Optional[int]
    bind_gpus: Optional[bool]
    cpus_per_task: Optional[int]


Words = List[str]


def one(option: str, value: Any) -> Words:
    # One word each: a value may begin with dashes itself.
    return [f"{option}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]


def flag(option: str, value: Any) -> Words:
    return [option] if value else []


def unless(option: str, value: Any) -> Words:
    return [] if value else [option]


def switch(option: str, value: Any) -> Words:
    return one(option, "on" if value else "off")


def seconds(option: str, value: Any) -> Words:
    return one(option, value if isinstance(value, str) else f"{value:.6f}s")


def names(option: str, value: Any) -> Words:
    return one(option, value if isinstance(value, str) else ",".join(value))


def each(option: str, value: Any) -> Words:
    return [f"{option}={text}" for text in ([value] if isinstance(value, str) else value)]


def counts(option: str, value: Any) -> Words:
    return [f"{option}={role}={count}" for role, count in value.items()]


def ports(option: str, value: Any) -> Words:
    return one(option, value if isinstance(value, str) else f"{value[0]}-{value[-1]}")


# How the values are written that are not simply one word.
WRITTEN: Dict[str, Callable[[str, Any], Words]] = {
    "chief": flag,
    "evaluator": flag,
    "roles": names,
    "threads": switch,
    "srun_args": each,
    "meet_timeout": seconds,
    "port_range": ports,
    "restart": counts,
    "tolerate": each,
    "grace": seconds,
    "rehearse": each,
    "tee": flag,
    "quiet": flag,
    "verbose": flag,
    "serve": names,
    "stand_in": switch,
    "bind_gpus": unless,
}


def option_of(keyword: str) -> str:
    """`--meet-timeout` for `meet_timeout`."""
    return "--no-gpu-binding" if keyword == "bind_gpus" else "--" + keyword.replace("_", "-")


def arguments(function: str, options: Mapping[str, Any]) -> Words:
    """The command line of these keywords; one that is none is a TypeError, as of any function."""
    words: Words = []
    for keyword, value in options.items():
        if keyword not in Options.__annotations__:
            raise TypeError(f"{function}() got an unexpected keyword argument {keyword!r}")
        if value is None:
            continue
        try:
            words += WRITTEN.get(keyword, one)(option_of(keyword), value)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise TypeError(f"{function}() cannot take {keyword}={value!r}: {error}") from error
    return words
