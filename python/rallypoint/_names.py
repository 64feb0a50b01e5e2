"""Addresses by name that nobody has asked for yet."""

from __future__ import annotations

import socket
from typing import Callable

from ._rallypoint import Roster


def tell_if_unknown(roster: Roster, say: Callable[[str], object]) -> None:
    """Says so if this member's own address is a name that means nothing here.

    TensorFlow waits for ever, without a word, for members whose names it cannot resolve. No error: a cluster can be
    looked at where it is not run.
    """
    if roster.me is None:
        return
    host = roster.addresses[roster.me.rank].rpartition(":")[0].strip("[]")
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        say(
            f"{host}, this member's own address, is not known here ({error}), and TensorFlow would wait for it for ever; "
            "hint: let the members meet with meet='auto', or give host_suffix, host_map or interface"
        )
