"""Workers that are not the chief see at once that they may begin, and say what they wait for until then."""

import threading
import time

import pytest
import tensorflow as tf

from rallypoint import hooks
from rallypoint.errors import MeetingTimeout

v1 = tf.compat.v1


def test_it_names_what_has_no_value_and_goes_on_as_soon_as_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "TELL", 0.0)
    server = v1.train.Server.create_local_server()
    told = threading.Event()
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        told.set()

    with v1.Graph().as_default():
        weights = v1.get_variable("weights", shape=[3])
        v1.get_variable("bias", shape=[1])
        first_values = v1.global_variables_initializer()
        with pytest.raises(MeetingTimeout, match="weights, bias.*hint:"):
            hooks.wait_for_chief(server.target, timeout=0.3, progress=lines.append)
        chief_session = v1.Session(server.target)

        def chief() -> None:
            assert told.wait(60)
            chief_session.run(first_values)

        thread = threading.Thread(target=chief)
        thread.start()
        began = time.monotonic()
        hooks.wait_for_chief(server.target, timeout=60, progress=tell)
        thread.join()
        # MonitoredTrainingSession would have slept for 30 s.
        assert time.monotonic() - began < 25
        assert chief_session.run(weights).shape == (3,)
        chief_session.close()
    assert "without a value: weights, bias" in lines[-1]
