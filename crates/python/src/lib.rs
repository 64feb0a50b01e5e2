//! `rallypoint._rallypoint`: the core for Python. Conversions only; what it all means stands in the core
//! and in the package's Python files.

mod errors;
mod hosts;
mod meeting;
mod plan;
mod ports;
mod spelling;

use pyo3::prelude::*;

/// The core of rallypoint; use the names of the package instead.
#[pymodule]
mod _rallypoint {
    #[pymodule_export]
    use super::hosts::{
        Step, expand_counts, expand_hostlist, fold_hostlist, own_address, reachable, slurm_step,
    };
    #[pymodule_export]
    use super::plan::{Member, Plan, Roster, gpu_masks, resolve};
    #[pymodule_export]
    use super::ports::{HeldPort, hold_port, port_in_use};
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
