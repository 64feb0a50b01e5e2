# Sourced by up, logs and down: which Slurm, in which folder, and how its daemons are told from others.
#   SLURM_TESTBED_DIR       the cluster's folder            [one in /tmp for each clone of this project]
#   SLURM_TESTBED_VERSION   22.05 or 24.11, fetched by get  [an installed Slurm, else the one that suits this host]
# A socket's path must be short, so the folder is not below this one.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lab=${SLURM_TESTBED_DIR:-/tmp/rallypoint-slurm-$(id -u)-$(cksum <<<"$here" | cut -d' ' -f1)}
export SLURM_CONF=$lab/etc/slurm.conf

# True if this host has a Slurm of its own; one that get has fetched does not count, even on PATH.
is_installed() {
    case $(PATH=$PATH:/usr/sbin command -v slurmctld) in "" | */build/slurm-*) return 1 ;; esac
}

# Puts Slurm's programs on PATH; sets prefix, empty for an installed one. A cluster that is up stays with its own.
find_slurm() {
    if [ -e "$lab/prefix" ]; then
        prefix=$(cat "$lab/prefix")
    elif [ -z "${SLURM_TESTBED_VERSION:-}" ] && is_installed; then
        prefix=
    else
        prefix=$("$here/get" ${SLURM_TESTBED_VERSION:+"$SLURM_TESTBED_VERSION"})
    fi
    export PATH=${prefix:+$prefix/usr/bin:$prefix/usr/sbin:}$PATH:/usr/sbin
}

# is_running PIDFILE NAME: the process exists, has that name (24.11 adds -wlm after a reconfigure) and is no zombie.
is_running() {
    local pid
    pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] || return 1
    case $(cat "/proc/$pid/comm" 2>/dev/null) in "$2" | "$2-wlm") ;; *) return 1 ;; esac
    ! grep -qs '^State:[[:space:]]*Z' "/proc/$pid/status"
}

# stop PIDFILE NAME: SIGTERM, five seconds, SIGKILL.
stop() {
    is_running "$1" "$2" && kill -TERM "$(cat "$1")" 2>/dev/null
    for _ in $(seq 100); do is_running "$1" "$2" || break; sleep 0.05; done
    is_running "$1" "$2" && kill -KILL "$(cat "$1")" 2>/dev/null
    rm -f "$1"
}

# The part of slurm.conf that is the same whether nodes share this host's network or have their own.
common_conf() {
    cat <<CONF
ClusterName=rallypoint
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$lab/munge/socket,cred_expire=10
${prefix:+PluginDir=$(echo "$prefix"/usr/lib/*/slurm-wlm)}
StateSaveLocation=$lab/state
SlurmdSpoolDir=$lab/spool/%n
SlurmctldPidFile=$lab/pid/slurmctld
SlurmdPidFile=$lab/pid/slurmd-%n
SlurmctldLogFile=$lab/log/slurmctld.log
SlurmdLogFile=$lab/log/slurmd-%n.log
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
PlugStackConfig=$lab/etc/plugstack.conf
MailProg=/bin/true
# Nothing here may need root, cgroups or a database; sacct -c reads the completions.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc=$lab/completions
# CPUs and memory are made up.
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
PropagateResourceLimits=NONE
# Every step gets ports of its own.
MpiDefault=none
MpiParams=ports=12000-12999
# Het jobs need the backfill scheduler; waits are short, since tests wait for them.
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,bf_resolution=1
ReturnToService=2
SlurmdTimeout=5
SlurmctldTimeout=10
MessageTimeout=10
KillWait=5
CompleteWait=0
UnkillableStepTimeout=60
MinJobAge=600
MaxArraySize=100
JobRequeue=1
CONF
}

write_common_files() {
    mkdir -p "$lab"/{etc,munge,state,spool,log,pid,dev}
    chmod 755 "$lab" "$lab/munge"
    echo "$prefix" >"$lab/prefix"
    : >"$lab/etc/plugstack.conf"
    # From 23.11 on the cgroup plugin starts whatever else is said; older versions do not know the word.
    local major
    major=$(slurmd -V | sed -E 's/[^0-9]*([0-9]+)\..*/\1/')
    rm -f "$lab/etc/cgroup.conf"
    if [ "$major" -ge 23 ]; then echo "CgroupPlugin=disabled" >"$lab/etc/cgroup.conf"; fi
}

start_munge() {
    [ -s "$lab/munge/key" ] || (umask 077; head -c 128 /dev/urandom >"$lab/munge/key")
    is_running "$lab/pid/munged" munged || munged --force --socket="$lab/munge/socket" --key-file="$lab/munge/key" \
        --pid-file="$lab/pid/munged" --log-file="$lab/log/munged.log" --seed-file="$lab/munge/seed" 2>>"$lab/log/munged.start"
}
