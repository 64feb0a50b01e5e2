"""Which faults there are in which mode, and the cases of a campaign: each is a name from which everything is drawn."""

import itertools
import os
import re
import subprocess
from dataclasses import dataclass
from random import Random

from setup import Mode, Moment
from strikes import STRIKES, Strike
from surroundings import PLAINLY, SURROUNDINGS, Surroundings

# Each adds its strikes, in this order.
import suspends  # noqa: F401  isort: skip
import outside  # noqa: F401  isort: skip


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@dataclass(frozen=True)
class Case:
    """`7.12/directory/kill-the-agent`: the twelfth of a campaign with seed 7."""

    number: str
    mode: Mode
    fault: str

    def __str__(self) -> str:
        return f"{self.number}/{self.mode.value}/{self.fault}"

    @staticmethod
    def parse(name: str) -> "Case":
        number, mode, fault = name.split("/")
        return Case(number, Mode(mode), fault)


@dataclass(frozen=True)
class Drawn:
    surroundings: Surroundings
    strike: Strike
    moment: Moment


def can_mount() -> bool:
    """Root in a container may not."""
    trial = ["unshare", "--mount", "--net", "mount", "-t", "tmpfs", "faults", "/mnt"]
    return os.geteuid() == 0 and subprocess.run(trial, capture_output=True, timeout=30).returncode == 0


def strike_named(name: str) -> Strike:
    return next(strike for strike in STRIKES if name in (strike.name, slug(strike.name)))


def faults_in(mode: Mode, root: bool) -> list[str]:
    """Without root, those that need neither mounts nor namespaces."""
    struck = [slug(one.name) for one in STRIKES if mode in one.modes and (root or not one.root)]
    around = [slug(one.name) for one in SURROUNDINGS if mode in one.modes and (root or not one.root)]
    return struck + around


def draw_fault(case: Case, draw: Random) -> Drawn:
    around = next((one for one in SURROUNDINGS if slug(one.name) == case.fault), PLAINLY)
    if around is PLAINLY:
        strike = strike_named(case.fault)
        return Drawn(around, strike, draw.choice(strike.moments_in(case.mode)))
    strike = strike_named(draw.choice(around.strikes))
    moments = [one for one in strike.moments_in(case.mode) if one in around.moments]
    return Drawn(around, strike, draw.choice(moments))


def campaign(seed: int, count: int, modes: list[Mode], faults: dict[Mode, list[str]]) -> list[Case]:
    """Every fault in every mode once in random order, then again, until there are enough."""
    draw = Random(seed)
    pairs = [(mode, fault) for mode in modes for fault in faults[mode]]
    cases: list[Case] = []
    while pairs and len(cases) < count:
        for mode, fault in itertools.islice(draw.sample(pairs, len(pairs)), count - len(cases)):
            cases.append(Case(f"{seed}.{len(cases) + 1}", mode, fault))
    return cases
