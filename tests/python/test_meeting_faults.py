"""Meetings in Python when something does not answer."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

from conftest import Programs

# A submit host has 20 s for an answer; Ctrl-C must not wait for it.
AT_ONCE = 12


def test_ctrl_c_ends_the_search_for_a_place_that_does_not_answer(tmp_path: Path, programs: Programs) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (tmp_path / "chirp").write_text(f"127.0.0.1 {silent.getsockname()[1]} cookie\n")
        ad = f'ClusterId = 1\nProcId = 0\nTotalSubmitProcs = 2\nJobRunCount = 1\nIwd = "{tmp_path}"\n'
        (tmp_path / "ad").write_text(ad)
        script = """
            import signal, rallypoint
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                rallypoint.resolve({"worker": 2}, on="htcondor").meet("chirp")
            except KeyboardInterrupt:
                print("interrupted")
        """
        variables = {"_CONDOR_CHIRP_CONFIG": str(tmp_path / "chirp"), "_CONDOR_JOB_AD": str(tmp_path / "ad")}
        process = programs.start(script, **variables)
        # It has been asked, and nobody answers.
        silent.settimeout(60)
        asked, _ = silent.accept()
        with asked:
            assert asked.recv(100).startswith(b"cookie")
            process.send_signal(signal.SIGINT)
            assert "interrupted" in process.communicate(timeout=AT_ONCE)[0]
    assert process.returncode == 0
