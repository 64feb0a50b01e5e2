#!/bin/sh
# plan, env and check on a sample: a real two-node allocation of Slurm 24.11, captured.
# usage: demo.sh RALLYPOINT
set -eu
rallypoint=$1
here=$(dirname "$0")

say() { printf '\n$ rallypoint %s\n' "$*"; "$rallypoint" "$@"; }

say plan --environ "$here/job.env" --ps 1
say env --environ "$here/job.env" --ps 1
# One of these files has another port than the others; check exits with 1.
say check "$here/tf_confs/ps.json" "$here/tf_confs/worker_0.json" "$here/tf_confs/worker_1.json" || [ $? -eq 1 ]
say plan --nodes 'n[01-04]' --tasks-per-node 4 --gpus-per-node 4 --roles 'ps,worker*7,ps,worker*7'
