#!/bin/bash
# A step of 64 tasks whose members do nothing, by rallypoint, against the bare `srun -n 64 true`, on testbed/slurm.
# usage: slurm.sh RALLYPOINT [ROUNDS]
set -euo pipefail
bin=$(realpath "${1:?usage: slurm.sh RALLYPOINT [ROUNDS]}") rounds=${2:-10}
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${SLURM_CONF:-}" ]; then exec "$here/../testbed/slurm/with" "$here/slurm.sh" "$bin" "$rounds"; fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
step=(-O -N4 -n64)

bare() { srun "${step[@]}" true; }
pmi() { srun --mpi=pmi2 "${step[@]}" "$bin" run --quiet -- true; }
directory() { srun "${step[@]}" "$bin" run --quiet -- true; }
launcher() { salloc --quiet "${step[@]}" "$bin" run --quiet --srun-args=-O -- true; }

ways="bare pmi directory launcher"
printf 'ms for 64 tasks on 4 nodes:'
printf ' %10s' $ways
# Interleaved, so that whatever else this machine does meets all alike; round 0 warms up and is not counted.
for round in $(seq 0 "$rounds"); do
    printf '\n%-27s' "round $round"
    for way in $ways; do
        start=$(date +%s%N)
        $way >"$way.log" 2>&1 || { echo "$way failed:"; cat "$way.log"; exit 1; } >&2
        ms=$((($(date +%s%N) - start) / 1000000))
        printf ' %10d' $ms
        [ "$round" = 0 ] || echo $ms >>"$way.ms"
    done
done
echo
for way in $ways; do
    paste "$way.ms" bare.ms | sort -n | awk -v way="$way" '
        { v[NR] = $1; r[NR] = $1 / $2; if (NR == 1 || r[NR] < lo) lo = r[NR]; if (r[NR] > hi) hi = r[NR]; sum += $2 }
        END { printf "%-10s median %5d ms (%d to %d), %.2f to %.2f times the bare step of the same round\n", way, v[int((NR + 1) / 2)], v[1], v[NR], lo, hi }'
done
