//! TF_CONFIG files against each other: what would make the cluster hang in silence.
//!
//! TensorFlow says nothing when a member waits for one that is not there, listens on another port or
//! does not know it exists. All of that can be seen in the files before anything starts.

mod config;

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
    MissingMember,
    MemberUnknown,
    DuplicateAddress,
    DuplicateTask,
    AddressDiffers,
    NoSuchIndex,
    NoSuchRole,
    PsWithoutWorkers,
    WorkerAlone,
    EvaluatorListed,
    NoPs,
    SeveralChiefs,
    BadAddress,
    LocalhostAmongHosts,
}

/// One thing that is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub file: String,
    pub kind: Kind,
    pub problem: String,
    pub fix: String,
}

type MemberKey<'a> = (&'a str, u32);

/// Everything wrong with the files of one cluster, by file.
///
/// A single file is looked at alone: nothing is said about members that have none.
pub fn check(files: &[ConfigFile], strategy: Strategy) -> Vec<Finding> {
    let agreed = Agreed::of(files);
    let mut findings: Vec<Finding> =
        files.iter().flat_map(|file| check_one(file, files, strategy, &agreed)).collect();
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
        self.members.keys().filter(|(member, _)| *member == role).count()
    }

    /// `"worker": ["a:1", "b:1"]`
    fn role_json(&self, role: &str) -> String {
        let addresses: Vec<&str> = self
            .members
            .iter()
            .filter(|((member, _), _)| *member == role)
            .map(|(_, address)| *address)
            .collect();
        format!("\"{role}\": {}", serde_json::to_string(&addresses).unwrap_or_default())
    }
}

fn finding(file: &ConfigFile, kind: Kind, problem: String, fix: String) -> Finding {
    Finding { file: file.name.clone(), kind, problem, fix }
}

/// What can be seen in one file, with the others as a hint what was meant.
fn check_one(
    file: &ConfigFile,
    files: &[ConfigFile],
    strategy: Strategy,
    agreed: &Agreed<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |kind, problem: String, fix: String| findings.push(finding(file, kind, problem, fix));
    let listed = file.cluster.get(&file.role);
    match listed {
        None if file.role == "evaluator" => {}
        None => say(
            Kind::NoSuchRole,
            format!("its task is {} {}, but its cluster has no {}", file.role, file.index, file.role),
            format!("add {} to its cluster", agreed.role_json(&file.role)),
        ),
        Some(addresses) if !matches!(addresses.get(file.index as usize), Some(Some(_))) => say(
            Kind::NoSuchIndex,
            format!(
                "its task is {} {}, but its cluster lists {} {} (index 0{})",
                file.role,
                file.index,
                file.count(&file.role),
                file.role,
                if addresses.len() > 1 { format!(" to {}", addresses.len() - 1) } else { String::new() }
            ),
            format!("list every {} in every file; the position in the list is the index", file.role),
        ),
        Some(_) => {}
    }
    let mut by_address: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut hosts = BTreeSet::new();
    for ((role, index), address) in file.members() {
        match split_address(address) {
            Err(reason) => say(
                Kind::BadAddress,
                format!("{role} {index} has the address {address:?}: {reason}"),
                "write host:port, with a port from 1 to 65535".to_owned(),
            ),
            Ok((host, _)) => {
                hosts.insert(host.to_owned());
                by_address.entry(normal(address)).or_default().push(format!("{role} {index}"));
            }
        }
    }
    for (address, members) in by_address.iter().filter(|(_, members)| members.len() > 1) {
        say(
            Kind::DuplicateAddress,
            format!("{} have the same address {address}", members.join(" and ")),
            "give each member a port of its own; two servers cannot share one".to_owned(),
        );
    }
    if let (Some(local), true) =
        (hosts.iter().find(|host| is_loopback(host)), hosts.iter().any(|host| !is_loopback(host)))
    {
        say(
            Kind::LocalhostAmongHosts,
            format!("{local} stands beside names of other machines, and means another machine on each"),
            "write the machine's own name or address".to_owned(),
        );
    }
    let (workers, ps, chiefs) =
        (file.count("worker"), file.count("ps"), file.count("chief") + file.count("master"));
    if chiefs > 1 {
        say(
            Kind::SeveralChiefs,
            format!("its cluster lists {chiefs} chiefs"),
            "list one; the others are workers".to_owned(),
        );
    }
    if file.role == "ps" && workers + chiefs == 0 {
        let known = if agreed.count("worker") > 0 {
            agreed.role_json("worker")
        } else {
            "\"worker\": [...]".to_owned()
        };
        say(
            Kind::PsWithoutWorkers,
            "a parameter server whose cluster has no worker: workers that connect to it wait for ever"
                .to_owned(),
            format!("add {known} to its cluster"),
        );
    }
    let other_workers =
        files.iter().filter(|other| other.role == "worker" && other.name != file.name).count();
    if file.role == "worker" && ps > 0 && workers == 1 && (agreed.count("worker") > 1 || other_workers > 0) {
        let known = files
            .iter()
            .filter(|other| other.role == "worker")
            .filter_map(|other| other.cluster.get("worker")?.first()?.as_deref())
            .collect::<BTreeSet<_>>();
        let fix = if agreed.count("worker") > 1 {
            agreed.role_json("worker")
        } else {
            format!("\"worker\": {}", serde_json::to_string(&known).unwrap_or_default())
        };
        say(
            Kind::WorkerAlone,
            "a worker that knows only itself and the ps: only the one with index 0 trains".to_owned(),
            format!("write {fix} in every file, and each worker's own position as its index"),
        );
    }
    let evaluators = file.count("evaluator");
    if evaluators > 0 && ps > 0 && chiefs > 0 {
        say(
            Kind::EvaluatorListed,
            "an evaluator in the cluster of a TF 2 coordinator: the chief waits for it without a word"
                .to_owned(),
            "leave the evaluator out of every cluster; its own file names it in \"task\" only".to_owned(),
        );
    }
    let needs_ps = match strategy {
        Strategy::Auto => chiefs > 0,
        Strategy::ParameterServer => true,
        Strategy::MultiWorkerMirrored => false,
    };
    if needs_ps && ps == 0 && file.role != "ps" {
        let known = if agreed.count("ps") > 0 {
            agreed.role_json("ps")
        } else {
            "\"ps\": [\"host:port\"]".to_owned()
        };
        say(
            Kind::NoPs,
            "no ps in its cluster: ParameterServerStrategy needs at least one".to_owned(),
            format!("add {known}; for MultiWorkerMirroredStrategy check with --strategy mirrored"),
        );
    }
    findings
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
            let Some(witness) =
                files.iter().find(|other| other.members().any(|known| known == ((role, index), expected)))
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
            let listed = file.members().any(|(member, _)| member == (role, index));
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
            let by = files.iter().find(|file| file.members().any(|(member, _)| member == (role, index)));
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
