"""The drop-in resolver beside TensorFlow's own, and the cost of the import. Ratios of one run, with the spread.

usage: python benchmarks/resolver.py [ROUNDS]      (needs the package and TensorFlow)
"""

import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
HOSTS, TASKS = 10_000, 8
os.environ.update(
    SLURM_PROCID="41234",
    SLURM_STEP_NUM_TASKS=str(HOSTS * TASKS),
    SLURM_STEP_NODELIST=f"n[00001-{HOSTS:05}]",
    SLURM_STEP_TASKS_PER_NODE=f"{TASKS}(x{HOSTS})",
    CUDA_VISIBLE_DEVICES="0,1,2,3,4,5,6,7",
)
rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15


def spread(times: list[float]) -> str:
    return f"{statistics.median(times):6.1f} ms ({min(times):.1f} to {max(times):.1f})"


bare, package = [], []
for _ in range(rounds):
    for script, times in (("pass", bare), ("import rallypoint", package)):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", script], check=True)
        times.append((time.perf_counter() - started) * 1000)
print(f"python -c pass               {spread(bare)}")
print(f"python -c import rallypoint  {spread(package)}")

import tensorflow as tf  # noqa: E402

import rallypoint.tensorflow  # noqa: E402

kinds = {
    "TensorFlow": tf.distribute.cluster_resolver.SlurmClusterResolver,
    "rallypoint": rallypoint.tensorflow.SlurmClusterResolver,
}
made = {name: [] for name in kinds}
whole = {name: [] for name in kinds}
for _ in range(rounds):
    for name, kind in kinds.items():
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,1,2,3,4,5,6,7"
        started = time.perf_counter()
        resolver = kind(auto_set_gpu=False)
        made[name].append((time.perf_counter() - started) * 1000)
        resolver.cluster_spec()
        whole[name].append((time.perf_counter() - started) * 1000)
print(f"{HOSTS} hosts x {TASKS} tasks")
for name in kinds:
    print(f"{name}: made in {spread(made[name])}, with cluster_spec {spread(whole[name])}")
ratios = [a / b for a, b in zip(whole["TensorFlow"], whole["rallypoint"])]
print(f"TensorFlow over rallypoint, whole: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
