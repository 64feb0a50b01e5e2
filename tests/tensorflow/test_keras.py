"""Keras' fit on several members: with tf_keras it trains, and Keras 3's failure comes with advice."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tensorflow_race import undisturbed

ROOT = Path(__file__).resolve().parents[2]
RALLYPOINT = os.environ.get("RALLYPOINT", str(ROOT / "target/release/rallypoint"))
LIMIT = 240

# What everybody would write; what is missing is in examples/keras_fit.
KERAS_3 = """
import os
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np, tensorflow as tf
me = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if "ps" not in me.cluster_spec().jobs:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    if me.task_type != "chief":
        tf.distribute.Server(me.cluster_spec(), job_name=me.task_type, task_index=me.task_id).join()
    strategy = tf.distribute.ParameterServerStrategy(me)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input([8]), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
data = tf.data.Dataset.from_tensor_slices((np.zeros((64, 8)), np.zeros((64, 1)))).repeat().batch(8)
model.fit(data, steps_per_epoch=4)
"""

MIRRORED = ("--workers", "2")
PARAMETER_SERVERS = ("--chief", "--ps", "1", "--workers", "2", "--serve", "ps,worker")


def run(*args: str, program: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    command = [RALLYPOINT, "run", *args, "--", sys.executable, program]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environ)


@pytest.mark.parametrize("members", [MIRRORED, PARAMETER_SERVERS], ids=["mirrored", "parameter-servers"])
def test_fit_with_tf_keras(members: tuple[str, ...]) -> None:
    done = undisturbed(lambda: run(*members, program=str(ROOT / "examples/keras_fit/train.py")))
    assert done.returncode == 0, done.stdout + done.stderr
    reached = [float(number) for number in re.findall(r"\] accuracy (0\.\d+)", done.stdout)]
    assert len(reached) == (2 if members is MIRRORED else 1), done.stdout
    assert min(reached) > 0.95


@pytest.mark.parametrize("members", [MIRRORED, PARAMETER_SERVERS], ids=["mirrored", "parameter-servers"])
def test_what_helps_against_keras_3_is_said(tmp_path: Path, members: tuple[str, ...]) -> None:
    program = tmp_path / "train.py"
    program.write_text(KERAS_3)
    done = run(*members, "--grace", "2s", program=str(program))
    assert done.returncode == 1, done.stdout + done.stderr
    [advice] = [line for line in done.stderr.splitlines() if line.startswith("rallypoint:   hint: ")]
    assert "`fit` of Keras 3" in advice and "TF_USE_LEGACY_KERAS=1" in advice and "tf_keras" in advice, done.stderr
