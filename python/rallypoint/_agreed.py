"""What `rallypoint run` agreed on with the other members, from the variables that it gives to its children."""

from __future__ import annotations

import json
from typing import Dict, List, Mapping, NamedTuple, Optional

from .errors import RoleError


class Agreed(NamedTuple):
    """Everybody's address, and which of them is this process."""

    cluster: Dict[str, List[str]]
    role: str
    task_index: int  # a tuple has an `index` already

    def expect(self, counts: Mapping[str, int]) -> None:
        """Refuses a cluster of other roles than the program's own."""
        # An evaluator is not part of a cluster.
        asked = {role: count for role, count in counts.items() if count and role != "evaluator"}
        there = {role: len(addresses) for role, addresses in self.cluster.items() if addresses}
        if asked != there:
            raise RoleError(
                f"this program asks for {asked}, but was started with {there}",
                hint="give `rallypoint run` the same roles, or the program those of `rallypoint run`",
            )


def agreed(environ: Mapping[str, str]) -> Optional[Agreed]:
    """None where this process is no child of `rallypoint run`."""
    if "RALLYPOINT_RANK" not in environ or "TF_CONFIG" not in environ:
        return None
    config = json.loads(environ["TF_CONFIG"])
    return Agreed(config["cluster"], config["task"]["type"], int(config["task"]["index"]))
