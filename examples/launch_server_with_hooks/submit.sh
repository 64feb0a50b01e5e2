#!/bin/bash
#SBATCH --job-name=launch_server
#SBATCH --ntasks=3
#SBATCH --cpus-per-task=1
#SBATCH --time=00:10:00
# usage: sbatch [-n TASKS] submit.sh [--no-hooks] [-ps N] [--meet WAY] [ENVIRONMENT]
#
#   sbatch submit.sh                  the python that was active when the job was submitted
#   sbatch submit.sh ~/venv           a virtual environment
#   sbatch submit.sh 217 3            TensorFlow 2.17 and Python 3, by this site's modules; see load_environment
#   sbatch submit.sh --no-hooks 217   the same with parameter servers that never end; rallypoint ends them
#   sbatch -n 6 submit.sh -ps 2       2 parameter servers and 4 workers
set -eu

# Edit this: the names are those of your site's modules, as `module avail tensorflow` shows them.
load_environment() { # VERSION [PYTHON]
    case $* in
        215 | "215 3") module load python/3.11 tensorflow/2.15 ;;
        217 | "217 3") module load python/3.12 tensorflow/2.17 ;;
        10 | 12 | 13 | 17 | "17 2" | "17 3")
            # What job scripts of TensorFlow 1 may still ask for; these programs need 2.12 and Python 3.9 or later.
            echo "submit.sh: '$*' was TensorFlow 1, which is too old; loading tensorflow/2.17 instead" >&2
            module load python/3.12 tensorflow/2.17
            ;;
        *)
            echo "submit.sh: no environment '$*'; hint: add it to load_environment, or give a virtual environment" >&2
            exit 2
            ;;
    esac
}

ps=1 hooks=yes meet=()
while [ $# -gt 0 ]; do
    case $1 in
        --no-hooks) hooks=no ;;
        -ps) ps=${2:?submit.sh: -ps needs a number} && shift ;;
        --meet) meet=(--meet "${2:?submit.sh: --meet needs auto or a folder}") && shift ;;
        -*) echo "submit.sh: no option '$1'; there are --no-hooks, -ps and --meet" >&2 && exit 2 ;;
        *) break ;;
    esac
    shift
done
if [ $# -gt 0 ] && [ -f "$1/bin/activate" ]; then
    # shellcheck source=/dev/null
    . "$1/bin/activate"
elif [ $# -gt 0 ]; then
    load_environment "$@"
fi

# Slurm runs a copy of this file; the programs are where the job was submitted.
cd "${SLURM_SUBMIT_DIR:-$(dirname "$0")}"
[ -f launch_server.py ] || {
    echo "submit.sh: launch_server.py is not in $PWD; hint: run sbatch in the folder of this example" >&2
    exit 2
}
workers=$((${SLURM_NTASKS:-3} - ps))
server=(python launch_server.py -ps "$ps" -workers "$workers")

# One that fails ends the others: a parameter server would wait for a dead worker until the time limit.
step=(srun --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}")
if [ $hooks = yes ]; then
    exec "${step[@]}" "${server[@]}" "${meet[@]}"
fi
exec "${step[@]}" rallypoint run --ps "$ps" --workers "$workers" "${meet[@]}" -- "${server[@]}" --no-hooks
