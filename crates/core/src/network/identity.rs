//! Names that tell this machine, and its process ids, from others.

/// A name for this machine that no other has until it boots again.
pub(crate) fn machine_id() -> String {
    #[cfg(feature = "simulation")]
    if let Some(machine) = crate::simulated::machine_id() {
        return machine;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // Containers share a kernel, and their network differs.
    let network =
        std::fs::read_link("/proc/self/ns/net").map(|link| link.display().to_string()).unwrap_or_default();
    format!("{} {network}", boot.trim())
}

/// The namespace that this process's pid belongs to: containers count their processes apart.
pub(crate) fn pid_namespace() -> String {
    #[cfg(feature = "simulation")]
    if let Some(namespace) = crate::simulated::pid_namespace() {
        return namespace;
    }
    std::fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default()
}
