//! Every environment variable that rallypoint reads or sets, as a documented constant.
//!
//! `docs/reference/variables.md` is generated from [`ALL`].

/// What `execve` takes in one string: a name, `=`, a value and the end.
pub(crate) const MAX_STRING: usize = (128 << 10) - 1;

/// Who sets a variable, or whom it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// A scheduler, by the name that `--on` takes.
    Scheduler(&'static str),
    /// Masks of GPUs.
    Devices,
    /// Proxies.
    Network,
    /// A framework, by the name that `--framework` takes.
    Framework(&'static str),
    /// rallypoint itself.
    Rallypoint,
    /// The system, the shell, and libraries.
    Machine,
}

/// Whether rallypoint reads a variable, sets it for the child, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// It is read.
    Read,
    /// It is set for the child.
    Set,
    /// Both.
    ReadAndSet,
}

/// One entry of the reference.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// `SLURM_JOB_ID`
    pub name: &'static str,
    /// Whose it is.
    pub family: Family,
    /// Whether it is read or set.
    pub usage: Use,
    /// One sentence for the reference page.
    pub meaning: &'static str,
}

macro_rules! variables {
    ($($ident:ident = $name:literal, $family:ident$(($of:literal))?, $usage:ident, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $ident: &str = $name;)*
        /// All of them, in the order of the reference page.
        pub const ALL: &[Variable] = &[
            $(Variable { name: $name, family: Family::$family$(($of))?, usage: Use::$usage, meaning: $meaning },)*
        ];
    };
}

variables! {
    SLURM_JOB_ID = "SLURM_JOB_ID", Scheduler("slurm"), Read, "The job. Its presence means Slurm.";
    SLURM_JOBID = "SLURM_JOBID", Scheduler("slurm"), Read, "The job's older name.";
    SLURM_RESTART_COUNT = "SLURM_RESTART_COUNT", Scheduler("slurm"), Read, "The attempt: unset in the first run, then 1, 2, ...";
    SLURM_STEP_ID = "SLURM_STEP_ID", Scheduler("slurm"), Read, "The step. Absent or negative (-5) in a batch script.";
    SLURM_STEPID = "SLURM_STEPID", Scheduler("slurm"), Read, "The step's older name.";
    SLURM_STEP_NODELIST = "SLURM_STEP_NODELIST", Scheduler("slurm"), Read, "The step's hosts, as a host list.";
    SLURM_STEP_NUM_TASKS = "SLURM_STEP_NUM_TASKS", Scheduler("slurm"), Read, "Tasks of the step.";
    SLURM_STEP_NUM_NODES = "SLURM_STEP_NUM_NODES", Scheduler("slurm"), Read, "Hosts of the step.";
    SLURM_STEP_TASKS_PER_NODE = "SLURM_STEP_TASKS_PER_NODE", Scheduler("slurm"), Read, "Tasks on each host of the step, such as `2(x2),1`.";
    SLURM_STEP_RESV_PORTS = "SLURM_STEP_RESV_PORTS", Scheduler("slurm"), Read, "Ports that `srun --resv-ports` reserved on every host of the step.";
    SLURM_UMASK = "SLURM_UMASK", Scheduler("slurm"), Read, "Set in every step's task and in no batch script, even one with an outer step's variables.";
    SLURM_TASK_PID = "SLURM_TASK_PID", Scheduler("slurm"), Read, "The task's process id; in a real job always set.";
    SLURM_PROCID = "SLURM_PROCID", Scheduler("slurm"), Read, "This task's rank in the step (0 in a batch script too).";
    SLURM_LOCALID = "SLURM_LOCALID", Scheduler("slurm"), Read, "This task's rank among those of its host.";
    SLURM_NODEID = "SLURM_NODEID", Scheduler("slurm"), Read, "This host's number in the step.";
    SLURM_GTIDS = "SLURM_GTIDS", Scheduler("slurm"), Read, "The ranks of all tasks on this host.";
    SLURMD_NODENAME = "SLURMD_NODENAME", Scheduler("slurm"), Read, "This host's name, as Slurm calls it.";
    SLURM_DISTRIBUTION = "SLURM_DISTRIBUTION", Scheduler("slurm"), Read, "How ranks are dealt over hosts: block, cyclic, plane, arbitrary.";
    SLURM_DIST_PLANESIZE = "SLURM_DIST_PLANESIZE", Scheduler("slurm"), Read, "The block size of the plane distribution.";
    SLURM_HOSTFILE = "SLURM_HOSTFILE", Scheduler("slurm"), Read, "A file with one host per rank, for the arbitrary distribution.";
    SLURM_HET_SIZE = "SLURM_HET_SIZE", Scheduler("slurm"), Read, "Components of a heterogeneous job; with it `SLURM_JOB_NODELIST_HET_GROUP_n` (or `_PACK_GROUP_n`, all that a direct het `srun` sets) and the like are read.";
    SLURM_JOB_NODELIST = "SLURM_JOB_NODELIST", Scheduler("slurm"), Read, "The job's hosts, as a host list.";
    SLURM_NODELIST = "SLURM_NODELIST", Scheduler("slurm"), Read, "The job's hosts, older name.";
    SLURM_JOB_NUM_NODES = "SLURM_JOB_NUM_NODES", Scheduler("slurm"), Read, "Hosts of the job.";
    SLURM_NNODES = "SLURM_NNODES", Scheduler("slurm"), Read, "Hosts of the job, or of the step inside one.";
    SLURM_NTASKS = "SLURM_NTASKS", Scheduler("slurm"), Read, "Tasks asked for; inside a step, the step's.";
    SLURM_NTASKS_PER_NODE = "SLURM_NTASKS_PER_NODE", Scheduler("slurm"), Read, "Tasks asked for on each host.";
    SLURM_TASKS_PER_NODE = "SLURM_TASKS_PER_NODE", Scheduler("slurm"), Read, "Tasks on each host of the job.";
    SLURM_CPUS_PER_TASK = "SLURM_CPUS_PER_TASK", Scheduler("slurm"), Read, "CPUs asked for a task.";
    SRUN_CPUS_PER_TASK = "SRUN_CPUS_PER_TASK", Scheduler("slurm"), ReadAndSet, "Set for the `srun` of launcher mode, which would not take the job's `--cpus-per-task` by itself.";
    SLURM_CPUS_ON_NODE = "SLURM_CPUS_ON_NODE", Scheduler("slurm"), Read, "CPUs given on this host.";
    SLURM_JOB_CPUS_PER_NODE = "SLURM_JOB_CPUS_PER_NODE", Scheduler("slurm"), Read, "CPUs given on each host of the job.";
    SLURM_JOB_END_TIME = "SLURM_JOB_END_TIME", Scheduler("slurm"), Read, "When the job's time limit ends it (seconds since 1970).";
    SLURM_GPUS_ON_NODE = "SLURM_GPUS_ON_NODE", Scheduler("slurm"), Read, "GPUs given on this host.";
    SLURM_STEP_GPUS = "SLURM_STEP_GPUS", Scheduler("slurm"), Read, "GPUs of the step on this host, or of this task when bound.";
    SLURM_JOB_GPUS = "SLURM_JOB_GPUS", Scheduler("slurm"), Read, "GPUs of the job on the first host; stale in a step without GPUs.";
    SLURM_GPUS = "SLURM_GPUS", Scheduler("slurm"), Read, "GPUs asked for in total: they may be uneven over the hosts.";
    PMI_FD = "PMI_FD", Scheduler("slurm"), Read, "With `srun --mpi=pmi2`: the descriptor on which Slurm answers; members may meet through it.";
    PMI_RANK = "PMI_RANK", Scheduler("slurm"), Read, "The task's rank, as PMI counts.";
    PMI_SIZE = "PMI_SIZE", Scheduler("slurm"), Read, "The step's tasks, as PMI counts.";
    PMI_JOBID = "PMI_JOBID", Scheduler("slurm"), Read, "The step, as PMI names it. Where members met through PMI, none of the four is handed on.";

    BATCH_SYSTEM = "BATCH_SYSTEM", Scheduler("htcondor"), Read, "`HTCondor` in its jobs.";
    CONDOR_JOB_AD = "_CONDOR_JOB_AD", Scheduler("htcondor"), Read, "The file with the job's attributes. Its presence means HTCondor.";
    CONDOR_MACHINE_AD = "_CONDOR_MACHINE_AD", Scheduler("htcondor"), Read, "The file with the slot's attributes.";
    CONDOR_PROCNO = "_CONDOR_PROCNO", Scheduler("htcondor"), Read, "The rank, in the parallel universe.";
    CONDOR_NPROCS = "_CONDOR_NPROCS", Scheduler("htcondor"), Read, "The number of nodes, in the parallel universe.";
    CONDOR_JOB_IWD = "_CONDOR_JOB_IWD", Scheduler("htcondor"), Read, "The job's working directory; the submit directory itself where a file system is shared.";
    CONDOR_SCRATCH_DIR = "_CONDOR_SCRATCH_DIR", Scheduler("htcondor"), Read, "The job's own directory on its host; a job that runs there has no shared file system.";
    CONDOR_CHIRP_CONFIG = "_CONDOR_CHIRP_CONFIG", Scheduler("htcondor"), Read, "The file that tells how to speak chirp with the submit host, for `--meet chirp`.";
    CONDOR_SLOT = "_CONDOR_SLOT", Scheduler("htcondor"), Read, "The slot's name on its host.";
    CONDOR_ASSIGNED_GPUS = "_CONDOR_AssignedGPUs", Scheduler("htcondor"), Read, "GPUs of the slot; `10000` means none.";

    CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES", Devices, ReadAndSet, "The NVIDIA GPUs that a process may use: indices, `GPU-` or `MIG-` ids.";
    NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES", Devices, Read, "What a container may use; `none` in HTCondor's jobs without GPU.";
    ROCR_VISIBLE_DEVICES = "ROCR_VISIBLE_DEVICES", Devices, ReadAndSet, "The AMD GPUs, for the ROCm runtime.";
    HIP_VISIBLE_DEVICES = "HIP_VISIBLE_DEVICES", Devices, ReadAndSet, "The AMD GPUs, for HIP programs.";
    GPU_DEVICE_ORDINAL = "GPU_DEVICE_ORDINAL", Devices, ReadAndSet, "The AMD GPUs, for OpenCL programs.";
    ZE_AFFINITY_MASK = "ZE_AFFINITY_MASK", Devices, ReadAndSet, "The Intel GPUs, for Level Zero.";

    HTTP_PROXY_LOWER = "http_proxy", Network, Read, "gRPC sends its traffic there, even to localhost.";
    HTTPS_PROXY_LOWER = "https_proxy", Network, Read, "As `http_proxy`.";
    GRPC_PROXY = "grpc_proxy", Network, Read, "gRPC's own proxy variable.";
    NO_PROXY_LOWER = "no_proxy", Network, ReadAndSet, "Hosts that are reached without the proxy; where one is set, the members' are added.";
    NO_PROXY_UPPER = "NO_PROXY", Network, ReadAndSet, "As `no_proxy`.";

    TF_CONFIG = "TF_CONFIG", Framework("tensorflow"), ReadAndSet, "TensorFlow's cluster and this member's task, as JSON; `serve` reads it.";

    TF_GRPC_REUSE_PORT = "TF_GRPC_REUSE_PORT", Framework("tensorflow"), ReadAndSet, "With `--hand-over reuse-port`: TensorFlow may bind beside the holder of its port.";
    TF_GRPC_DEFAULT_OPTIONS = "TF_GRPC_DEFAULT_OPTIONS", Framework("tensorflow"), ReadAndSet, "gRPC's options as `name=value,...`; what `serve` is given is added behind.";
    TF_CPP_MIN_LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL", Framework("tensorflow"), ReadAndSet, "From which severity on TensorFlow talks: `serve` sets 2, errors alone, unless set.";
    TF_NUM_INTRAOP_THREADS = "TF_NUM_INTRAOP_THREADS", Framework("tensorflow"), ReadAndSet, "Threads within an op: the slot's CPUs, unless set.";
    TF_NUM_INTEROP_THREADS = "TF_NUM_INTEROP_THREADS", Framework("tensorflow"), ReadAndSet, "Ops at a time: the slot's CPUs, but at least 2, unless set.";

    OMP_NUM_THREADS = "OMP_NUM_THREADS", Machine, ReadAndSet, "Threads of the numeric libraries: the slot's CPUs, unless set; HTCondor sets it so.";
    TMPDIR = "TMPDIR", Machine, Read, "Where the private directory of a run is made; without it in `/dev/shm`, else in `/tmp`.";
    HOME = "HOME", Machine, Read, "Where `.config/rallypoint/rallypoint.toml` is looked for.";
    XDG_CONFIG_HOME = "XDG_CONFIG_HOME", Machine, Read, "The same without `.config`, if it is set.";
    NO_COLOR = "NO_COLOR", Machine, Read, "If set, prefixes have no colour.";
    VIRTUAL_ENV = "VIRTUAL_ENV", Machine, Read, "The active virtual environment, where `doctor` and `serve` look for TensorFlow.";
    CONDA_PREFIX = "CONDA_PREFIX", Machine, Read, "Conda's active environment, where `serve` looks for TensorFlow.";
    LD_LIBRARY_PATH = "LD_LIBRARY_PATH", Machine, Read, "Where `serve` looks for a TensorFlow without Python.";
    PATH = "PATH", Machine, Read, "Where `nvidia-smi` and `python3` are looked for.";

    MASTER_ADDR = "MASTER_ADDR", Framework("torch"), Set, "The address of rank 0.";
    MASTER_PORT = "MASTER_PORT", Framework("torch"), Set, "The port of rank 0.";
    RANK = "RANK", Framework("torch"), Set, "This member's rank.";
    WORLD_SIZE = "WORLD_SIZE", Framework("torch"), Set, "The number of members.";
    LOCAL_RANK = "LOCAL_RANK", Framework("torch"), Set, "This member's rank among those of its host.";
    LOCAL_WORLD_SIZE = "LOCAL_WORLD_SIZE", Framework("torch"), Set, "The number of members on its host.";
    NODE_RANK = "NODE_RANK", Framework("torch"), Set, "The number of its host.";

    JAX_COORDINATOR_ADDRESS = "JAX_COORDINATOR_ADDRESS", Framework("jax"), Set, "`host:port` of rank 0.";
    JAX_NUM_PROCESSES = "JAX_NUM_PROCESSES", Framework("jax"), Set, "The number of members, for programs that pass it on.";
    JAX_PROCESS_ID = "JAX_PROCESS_ID", Framework("jax"), Set, "This member's rank, for programs that pass it on.";
    JAX_LOCAL_DEVICE_IDS = "JAX_LOCAL_DEVICE_IDS", Framework("jax"), Set, "The devices that this member sees, counted from 0.";
    OMPI_MCA_ORTE_HNP_URI = "OMPI_MCA_orte_hnp_uri", Framework("jax"), Set, "What JAX takes for Open MPI's launcher.";
    OMPI_COMM_WORLD_SIZE = "OMPI_COMM_WORLD_SIZE", Framework("jax"), Set, "The number of members, as JAX reads it.";
    OMPI_COMM_WORLD_RANK = "OMPI_COMM_WORLD_RANK", Framework("jax"), Set, "This member's rank, as JAX reads it.";
    OMPI_COMM_WORLD_LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK", Framework("jax"), Set, "Its rank on its host, as JAX reads it.";

    RALLYPOINT_ROLE = "RALLYPOINT_ROLE", Rallypoint, Set, "This member's role.";
    RALLYPOINT_INDEX = "RALLYPOINT_INDEX", Rallypoint, Set, "This member's index within its role.";
    RALLYPOINT_RANK = "RALLYPOINT_RANK", Rallypoint, Set, "This member's rank.";
    RALLYPOINT_WORLD = "RALLYPOINT_WORLD", Rallypoint, Set, "The number of members.";
    RALLYPOINT_LOCAL_RANK = "RALLYPOINT_LOCAL_RANK", Rallypoint, Set, "This member's rank among those of its host.";
    RALLYPOINT_ATTEMPT = "RALLYPOINT_ATTEMPT", Rallypoint, Set, "The attempt, counted from 0.";
    RALLYPOINT_DEADLINE = "RALLYPOINT_DEADLINE", Rallypoint, Set, "When the scheduler's time limit ends the job (seconds since 1970), where it is known.";
    RALLYPOINT_ADDRESS = "RALLYPOINT_ADDRESS", Rallypoint, Set, "This member's own `host:port`.";
    RALLYPOINT_ROSTER_FILE = "RALLYPOINT_ROSTER_FILE", Rallypoint, Set, "A JSON file with every member's role, index, host and address.";
    RALLYPOINT_ERROR_FILE = "RALLYPOINT_ERROR_FILE", Rallypoint, Set, "Where the program may write why it failed, before it exits.";
    RALLYPOINT_GPUS_GIVEN = "RALLYPOINT_GPUS_GIVEN", Rallypoint, ReadAndSet, "Set by the Python resolvers beside a GPU mask that they narrowed: the mask that was given.";
    RALLYPOINT_IB_SUFFIX = "RALLYPOINT_IB_SUFFIX", Rallypoint, Read, "A site's rule for `rallypoint.tf4slurm`: what stands behind a host's name for its InfiniBand address.";
    RALLYPOINT_IB_MAP = "RALLYPOINT_IB_MAP", Rallypoint, Read, "The same as a substitution over host names, as in sed.";
    RALLYPOINT_KEY_FILE = "RALLYPOINT_KEY_FILE", Rallypoint, Read, "A file with the job's key: 64 hexadecimal digits, or any secret of 32 bytes or more.";
    RALLYPOINT_LOG = "RALLYPOINT_LOG", Rallypoint, Read, "`debug` or `trace`: every decision with its reason, on stderr; `run -v` does the same.";
    RALLYPOINT_CONFIG = "RALLYPOINT_CONFIG", Rallypoint, Read, "A file that is read before any other `rallypoint.toml`.";
}

/// Those of one family, in the order of the reference page.
pub fn of(family: Family) -> Vec<Variable> {
    ALL.iter().filter(|variable| variable.family == family).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::ALL;
    use std::collections::BTreeSet;

    #[test]
    fn every_variable_is_named_once() {
        let names: BTreeSet<_> = ALL.iter().map(|variable| variable.name).collect();
        assert_eq!(names.len(), ALL.len());
    }
}
