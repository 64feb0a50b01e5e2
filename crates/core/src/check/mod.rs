//! TF_CONFIG files against each other: what would make the cluster hang in silence.
//!
//! TensorFlow says nothing when a member waits for one that is not there, listens on another port or
//! does not know it exists. All of that can be seen in the files before anything starts.

mod config;
mod one_file;

pub use config::{ConfigError, ConfigFile};

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What the cluster is for; some findings depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// Parameter servers where there is a chief or a ps, otherwise workers among themselves.
    #[default]
    Auto,
    /// `ParameterServerStrategy`, or TF 1 with parameter servers.
    ParameterServer,
    /// `MultiWorkerMirroredStrategy`
    MultiWorkerMirrored,
}

/// The kinds of trouble, as `--json` names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A member is listed, but no file is its own.
    MissingMember,
    /// A file does not list a member that others list.
    MemberUnknown,
    /// Two members have one address.
    DuplicateAddress,
    /// Two files are for the same member.
    DuplicateTask,
    /// A file has another address for a member than most files.
    AddressDiffers,
    /// The file's own index is not in its own cluster.
    NoSuchIndex,
    /// The file's own role is not in its own cluster.
    NoSuchRole,
    /// There are parameter servers, and nobody who would use them.
    PsWithoutWorkers,
    /// A worker's cluster lists itself alone.
    WorkerAlone,
    /// The evaluator stands in the cluster, where TensorFlow 2 waits for it.
    EvaluatorListed,
    /// The strategy needs parameter servers, and there are none.
    NoPs,
    /// There is more than one chief.
    SeveralChiefs,
    /// An address is not `host:port`.
    BadAddress,
    /// An address is this machine's own while others are on other hosts.
    LocalhostAmongHosts,
}

/// One thing that is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The file it is about, as the user named it.
    pub file: String,
    /// What kind of trouble it is.
    pub kind: Kind,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub fix: String,
}

type MemberKey<'a> = (&'a str, u32);

/// As many addresses of a role are written out in a fix.
const MOST_LISTED: usize = 16;

/// Everything wrong with the files of one cluster, by file.
///
/// A single file is looked at alone: nothing is said about members that have none.
pub fn check(files: &[ConfigFile], strategy: Strategy) -> Vec<Finding> {
    let agreed = Agreed::of(files);
    let mut findings: Vec<Finding> =
        files.iter().flat_map(|file| one_file::findings(file, files, strategy, &agreed)).collect();
    findings.extend(duplicate_tasks(files));
    findings.extend(differing_addresses(files, &agreed));
    findings.extend(unknown_members(files, &agreed, &findings));
    if files.len() > 1 {
        findings.extend(missing_files(files, &agreed));
    }
    findings.sort();
    findings.dedup();
    findings
}

/// The address most files have for each member.
struct Agreed<'a> {
    members: BTreeMap<MemberKey<'a>, &'a str>,
}

impl<'a> Agreed<'a> {
    fn of(files: &'a [ConfigFile]) -> Agreed<'a> {
        let mut votes: BTreeMap<MemberKey<'a>, Vec<(&'a str, usize)>> = BTreeMap::new();
        for file in files {
            for (member, address) in file.members() {
                let own = usize::from(member == (file.role.as_str(), file.index));
                let candidates = votes.entry(member).or_default();
                match candidates.iter_mut().find(|(known, _)| *known == address) {
                    Some((_, count)) => *count += 2 + own,
                    None => candidates.push((address, 2 + own)),
                }
            }
        }
        let members = votes
            .into_iter()
            .filter_map(|(member, candidates)| {
                let best = candidates.iter().map(|(_, count)| *count).max()?;
                candidates.iter().find(|(_, count)| *count == best).map(|(address, _)| (member, *address))
            })
            .collect();
        Agreed { members }
    }

    fn count(&self, role: &str) -> usize {
        self.of_role(role).count()
    }

    fn of_role<'b>(&'b self, role: &'b str) -> impl Iterator<Item = &'a str> + 'b {
        self.members.range((role, 0)..=(role, u32::MAX)).map(|(_, address)| *address)
    }

    /// `"worker": ["a:1", "b:1"]`, of many members the first: the text may stand in a finding about each of them.
    fn role_json(&self, role: &str) -> String {
        let addresses: Vec<&str> = self.of_role(role).take(MOST_LISTED).collect();
        let json = serde_json::to_string(&addresses).unwrap_or_default();
        match self.of_role(role).skip(MOST_LISTED).count() {
            0 => format!("\"{role}\": {json}"),
            more => format!("\"{role}\": {}, and {more} more]", json.trim_end_matches(']')),
        }
    }
}

fn finding(file: &ConfigFile, kind: Kind, problem: String, fix: String) -> Finding {
    Finding { file: file.name.clone(), kind, problem, fix }
}

fn duplicate_tasks(files: &[ConfigFile]) -> Vec<Finding> {
    let mut first: BTreeMap<MemberKey<'_>, &ConfigFile> = BTreeMap::new();
    let mut findings = Vec::new();
    for file in files {
        match first.get(&(file.role.as_str(), file.index)) {
            None => _ = first.insert((&file.role, file.index), file),
            Some(other) => findings.push(finding(
                file,
                Kind::DuplicateTask,
                format!("its task is {} {}, and so is that of {}", file.role, file.index, other.name),
                "give each file an index of its own".to_owned(),
            )),
        }
    }
    findings
}

/// Files whose address for a member is not the one most files have.
fn differing_addresses(files: &[ConfigFile], agreed: &Agreed<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        for ((role, index), address) in file.members() {
            let Some(&expected) = agreed.members.get(&(role, index)) else { continue };
            if normal(address) == normal(expected) {
                continue;
            }
            let Some(witness) = files.iter().find(|other| other.address_of((role, index)) == Some(expected))
            else {
                continue;
            };
            let what = match (split_address(address), split_address(expected)) {
                (Ok((host, port)), Ok((other_host, other_port))) if same_host(host, other_host) => {
                    format!("has port {port} for {role} {index}, but {} has {other_port}", witness.name)
                }
                _ => format!("has {address} for {role} {index}, but {} has {expected}", witness.name),
            };
            findings.push(finding(
                file,
                Kind::AddressDiffers,
                what,
                format!("write one address for {role} {index} in all files, such as {expected}"),
            ));
        }
    }
    findings
}

/// Members that some files list and others do not.
fn unknown_members(files: &[ConfigFile], agreed: &Agreed<'_>, said: &[Finding]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let already = |kinds: &[Kind]| {
            said.iter().any(|finding| finding.file == file.name && kinds.contains(&finding.kind))
        };
        for (&(role, index), address) in &agreed.members {
            let listed = file.address_of((role, index)).is_some();
            let explained = match role {
                "worker" => already(&[Kind::WorkerAlone, Kind::PsWithoutWorkers]),
                "ps" => already(&[Kind::NoPs]),
                "evaluator" => true,
                _ => false,
            };
            if !listed && !explained {
                findings.push(finding(
                    file,
                    Kind::MemberUnknown,
                    format!("does not list {role} {index} ({address}), which other files do"),
                    format!("write {} in every file", agreed.role_json(role)),
                ));
            }
        }
    }
    findings
}

/// Members that are listed but have no file, so nobody will start them.
fn missing_files(files: &[ConfigFile], agreed: &Agreed<'_>) -> Vec<Finding> {
    let present: BTreeSet<MemberKey<'_>> =
        files.iter().map(|file| (file.role.as_str(), file.index)).collect();
    agreed
        .members
        .iter()
        .filter(|(member, _)| !present.contains(*member) && member.0 != "evaluator")
        .map(|(&(role, index), address)| {
            let by = files.iter().find(|file| file.address_of((role, index)).is_some());
            Finding {
                file: by.map(|file| file.name.clone()).unwrap_or_default(),
                kind: Kind::MissingMember,
                problem: format!("lists {role} {index} ({address}), but no file is that member's: the others wait for it"),
                fix: format!(
                    "add a file with \"task\": {{\"type\": \"{role}\", \"index\": {index}}}, or take {address} out of every cluster"
                ),
            }
        })
        .collect()
}

/// `host:port`, `[::1]:port`
pub(crate) fn split_address(address: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = address.rsplit_once(':').ok_or("it has no port")?;
    let port = port.parse().map_err(|_| "its port is not a number up to 65535")?;
    match (host, port) {
        ("", _) => Err("it has no host"),
        (_, 0) => Err("port 0 is none"),
        ("0.0.0.0" | "[::]", _) => Err("nobody can connect to that address"),
        (host, _) if host.contains(':') && !host.starts_with('[') => Err("an IPv6 address needs [brackets]"),
        (host, _) if host.contains(char::is_whitespace) => Err("it contains white space"),
        (host, port) => Ok((host, port)),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.starts_with("127.") || host == "[::1]"
}

fn same_host(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || (is_loopback(a) && is_loopback(b))
}

/// An address in the form in which equal ones are equal.
fn normal(address: &str) -> String {
    match split_address(address) {
        Ok((host, port)) if is_loopback(host) => format!("localhost:{port}"),
        _ => address.to_ascii_lowercase(),
    }
}
