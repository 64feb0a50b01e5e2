#!/bin/sh
# The command end to end, as processes: mean of 50 runs each, five times over.
# usage: command.sh RALLYPOINT
set -eu
bin=$1
runs=50

measure() { # title, then the command
    title=$1; shift
    printf '%-44s' "$title"
    for _ in 1 2 3 4 5; do
        start=$(date +%s%N)
        i=0
        while [ $i -lt $runs ]; do "$@" >/dev/null; i=$((i + 1)); done
        end=$(date +%s%N)
        printf ' %6d' $(((end - start) / runs / 1000))
    done
    printf ' us\n'
}

measure 'nothing (/bin/true)' /bin/true
measure '--version' "$bin" --version
measure 'plan, 10,000 hosts x 8 tasks, table' "$bin" plan --nodes 'n[00001-10000]' --tasks-per-node 8 --gpus-per-node 8
measure 'plan, 10,000 hosts x 8 tasks, JSON' "$bin" plan --json --nodes 'n[00001-10000]' --tasks-per-node 8 --gpus-per-node 8
measure 'hostlist expand, 1,000,000 names' "$bin" hostlist expand 'n[0000001-1000000]'
