#!/bin/sh
# The launch end to end: 64 members of `true` started and waited for on this machine,
# by rallypoint, Open MPI's mpirun and PyTorch's torchrun.
# usage: launch.sh [--torch] RALLYPOINT [ROUNDS]
#
# A launcher on PATH is used as it is. Else Open MPI (6 MB and apt's package lists) is unpacked into
# build/openmpi; torch, with --torch alone, is installed into build/torch-venv, since PyPI's wheel
# for Linux comes with all of CUDA: 3 GB to download. No root, nothing outside of build.
set -eu
torch=no
if [ "${1-}" = --torch ]; then torch=yes; shift; fi
bin=${1:?usage: launch.sh [--torch] RALLYPOINT [ROUNDS]}
rounds=${2:-5}
members=64
build=$(cd "$(dirname "$0")/.." && pwd)/build
times=$build/launch # a file of milliseconds for each launcher, and what it said last
rm -rf "$times"
mkdir -p "$times"

get_openmpi() {
    prefix=$build/openmpi
    [ ! -e "$prefix/done" ] || return 0
    command -v apt-get >/dev/null || { echo "launch.sh: no mpirun, and no apt-get to get one" >&2; return 1; }
    rm -rf "$prefix"
    mkdir -p "$prefix/lists/partial" "$prefix/cache/archives/partial"
    # lists of our own: the host's may be empty or stale, and only root may refresh them
    apt="apt-get -qq -o Dir::State::lists=$prefix/lists -o Dir::Cache=$prefix/cache -o APT::Sandbox::User=$(id -un)"
    # -s only says what openmpi-bin lacks on this host: one line `Inst NAME (...)` a package
    (cd "$prefix" && $apt update &&
        $apt download $($apt install -s --no-install-recommends openmpi-bin | sed -n 's/^Inst \([^ ]*\).*/\1/p') &&
        for deb in *.deb; do dpkg-deb -x "$deb" root || exit 1; done &&
        rm -rf ./*.deb lists cache && touch done)
}

root=$build/openmpi/root
mpirun=$(command -v mpirun) || { get_openmpi; mpirun=$root/usr/bin/mpirun.openmpi; }

run_mpirun() ( # the variables of a private copy are for mpirun alone
    if [ "$mpirun" = "$root/usr/bin/mpirun.openmpi" ]; then
        export OPAL_DESTDIR="$root" # before all paths that were compiled in
        # PMIx has no such variable that works here: without its plugins it complains at each start
        PMIX_MCA_mca_base_component_path=$(echo "$root"/usr/lib/*/pmix2/lib/pmix)
        LD_LIBRARY_PATH=$(echo "$root"/usr/lib/*-linux-gnu*):$(echo "$root"/lib/*-linux-gnu*)
        export PMIX_MCA_mca_base_component_path LD_LIBRARY_PATH
    fi
    # 4.1.4 often hangs once all members have ended: a race of the threads it starts them with. One
    # thread (--mca odls_base_num_threads 1) never does but is slower, so measure() tries again instead
    timeout -k 5 5 "$mpirun" --allow-run-as-root --oversubscribe -n "$1" --mca btl self,tcp --mca btl_tcp_if_include lo true
)

torchrun=$(command -v torchrun || echo "$build/torch-venv/bin/torchrun")
if [ ! -x "$torchrun" ] && [ $torch = yes ]; then
    python3 -m venv "$build/torch-venv" && "$build/torch-venv/bin/pip" install --quiet torch ||
        echo "torchrun: installing torch failed"
fi
if [ ! -x "$torchrun" ]; then
    echo "torchrun: not available, skipped (--torch installs it into build/torch-venv)"
    torchrun=
fi

run_rallypoint() { "$bin" run --workers "$1" --quiet -- true; }
run_torchrun() { "$torchrun" --nproc-per-node "$1" --no-python true; }

measure() { # name, the file for its time
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        status=0
        start=$(date +%s%N)
        "run_$1" $members >"$times/$1.log" 2>&1 || status=$?
        end=$(date +%s%N)
        [ $status = 124 ] || break # what timeout says
        printf ' (hung)'
    done
    [ $status = 0 ] || { echo " $1 failed:"; cat "$times/$1.log"; exit 1; } >&2
    echo $(((end - start) / 1000000)) | tee -a "$times/$1.$2" | xargs printf ' %11d'
}

launchers="rallypoint mpirun${torchrun:+ torchrun}"
printf 'ms for %s members:' $members
printf ' %11s' $launchers
# interleaved, so that whatever else this machine does meets all of them alike;
# round 0 only brings the programs into the page cache, and is not counted
for round in $(seq 0 "$rounds"); do
    printf '\n%-18s' "round $round"
    [ "$round" = 0 ] && file=warm-up || file=ms
    for launcher in $launchers; do measure "$launcher" $file; done
done
echo

median() { sort -n "$times/$1.ms" | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
ours=$(median rallypoint)
for launcher in $launchers; do
    paste "$times/$launcher.ms" "$times/rallypoint.ms" | awk -v name="$launcher" -v median="$(median "$launcher")" -v ours="$ours" '
        { r = $1 / $2; if (NR == 1 || r < lo) lo = r; if (r > hi) hi = r }
        END { printf "%-18s median %6.1f ms", name, median
              if (name != "rallypoint") printf ", %.2f times rallypoint (rounds: %.2f to %.2f)", median / ours, lo, hi
              print "" }'
done
