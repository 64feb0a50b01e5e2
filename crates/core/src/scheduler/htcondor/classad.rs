//! The few lines of HTCondor's ClassAd language that a job's own ads are written in.
//!
//! A file of `Name = value` lines. Only literals are understood; an expression (`10 * 60`, a nested
//! record) stays text, since no attribute we read is one.

use std::collections::HashMap;

/// The attributes of one ad. Names do not regard case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClassAd {
    attributes: HashMap<String, String>,
}

impl ClassAd {
    /// Reads an ad. Lines that are none are passed over: an ad may hold anything its writer liked.
    pub(super) fn parse(text: &str) -> ClassAd {
        let attributes = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
            .filter(|(name, _)| !name.is_empty())
            .collect();
        ClassAd { attributes }
    }

    /// All of them, names in lower case.
    #[cfg(feature = "fuzzing")]
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// An attribute as it is written.
    pub(super) fn raw(&self, name: &str) -> Option<&str> {
        self.attributes.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// A string attribute, without its quotes.
    pub(super) fn string(&self, name: &str) -> Option<String> {
        let quoted = self.raw(name)?.strip_prefix('"')?.strip_suffix('"')?;
        Some(quoted.replace("\\\"", "\"").replace("\\\\", "\\"))
    }

    /// A whole number that is not negative. HTCondor writes some as `3.0`.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let raw = self.raw(name)?;
        raw.strip_suffix(".0").unwrap_or(raw).parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::ClassAd;

    #[test]
    fn reads_what_a_job_ad_holds() {
        let ad = ClassAd::parse(
            "ClusterId = 3\nRemoteHost = \"slot1_1@ex2.lab\"\nMachineMaxVacateTime = 10 * 60\nCpus = 3.0\nA = \"x \\\"y\\\"\"\nnonsense\n = 4\n",
        );
        assert_eq!(ad.number("clusterid"), Some(3));
        assert_eq!(ad.string("RemoteHost").as_deref(), Some("slot1_1@ex2.lab"));
        assert_eq!(ad.number("MachineMaxVacateTime"), None);
        assert_eq!(ad.number("Cpus"), Some(3));
        assert_eq!(ad.string("A").as_deref(), Some("x \"y\""));
        assert_eq!(ad.raw("missing"), None);
        assert_eq!(ad.string("ClusterId"), None);
    }
}
