//! A submit description for HTCondor, as a person would be glad to have written it.

use crate::scheduler::submit::Work;
use crate::shell;

/// How the procs of a job belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Universe {
    /// One proc per member; each is matched, evicted and started again by itself.
    #[default]
    Vanilla,
    /// One node per member; all are matched and started together, by a dedicated scheduler.
    Parallel,
}

/// What is asked of HTCondor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) universe: Universe,
    /// `1 ps, 2 workers`, for people.
    pub(super) roles: String,
    pub(super) members: u32,
    /// The name of the job, and the beginning of its files' names.
    pub(super) name: String,
    /// Where output and logs go; the submit directory if it is empty.
    pub(super) logs: String,
    /// `request_cpus` and the like, in the order in which they are to stand.
    pub(super) resources: Vec<(&'static str, String)>,
    /// GPUs of each member.
    pub(super) gpus: Option<u32>,
    /// Parameter servers, who need none: the first rank of them, and the one behind the last.
    pub(super) without_gpus: Option<(u32, u32)>,
    /// Files that go with the job, where no file system is shared.
    pub(super) transfer: Option<Vec<String>>,
    /// How often the job is started again if members were lost, evicted, or did not meet.
    pub(super) retries: u32,
    /// Start it again if the program itself has failed, too.
    pub(super) retry_failures: bool,
    /// Seconds that members may take to end.
    pub(super) grace: u64,
    /// More lines, as the user wrote them.
    pub(super) more: Vec<String>,
}

impl Request {
    /// HTCondor's own number for a member's files.
    fn number(&self) -> &'static str {
        match self.universe {
            Universe::Vanilla => "$(Process)",
            Universe::Parallel => "$(Node)",
        }
    }

    fn file(&self, rest: &str) -> String {
        let folder = if self.logs.is_empty() { String::new() } else { format!("{}/", self.logs) };
        macro_text(&format!("{folder}{}", self.name)) + rest
    }

    /// The user log of a cluster.
    pub(super) fn log(&self, cluster: &str) -> String {
        self.written(&format!("{cluster}.log"))
    }

    /// Where a member's stdout (`out`) or stderr (`err`) goes. `*` for all members is what a shell needs.
    pub(super) fn output(&self, cluster: &str, member: impl std::fmt::Display, stream: &str) -> String {
        self.written(&format!("{cluster}.{member}.{stream}"))
    }

    fn written(&self, rest: &str) -> String {
        let folder = if self.logs.is_empty() { String::new() } else { format!("{}/", self.logs) };
        format!("{folder}{}-{rest}", self.name)
    }
}

/// The submit description.
pub(super) fn description(request: &Request, work: &Work) -> String {
    let mut text = String::new();
    if !work.made_by.is_empty() {
        text.push_str(&format!("# made by: {}\n", shell::one_line(&shell::line(&work.made_by))));
    }
    let (unit, universe) = match request.universe {
        Universe::Vanilla => ("proc", "vanilla"),
        Universe::Parallel => ("node", "parallel"),
    };
    text.push_str(&format!("# {} members, one per {unit}: {}\n\n", request.members, request.roles));
    section(&mut text, &[("universe", universe.to_owned()), ("batch_name", macro_text(&request.name))]);
    section(&mut text, &program(request, work));
    files(&mut text, request);

    resources(&mut text, request);

    section(
        &mut text,
        &[
            ("output", request.file(&format!("-$(Cluster).{}.out", request.number()))),
            ("error", request.file(&format!("-$(Cluster).{}.err", request.number()))),
            ("log", request.file("-$(Cluster).log")),
        ],
    );
    ending(&mut text, request);
    for line in &request.more {
        text.push_str(&shell::one_line(line));
        text.push('\n');
    }
    if !request.more.is_empty() {
        text.push('\n');
    }
    match request.universe {
        Universe::Vanilla => text.push_str(&format!("queue {}\n", request.members)),
        Universe::Parallel => text.push_str("queue\n"),
    }
    text
}

fn resources(text: &mut String, request: &Request) {
    let mut lines = request.resources.clone();
    let by_proc = request.without_gpus.filter(|_| request.universe == Universe::Vanilla);
    if let (Some(gpus), None) = (request.gpus, &by_proc) {
        lines.push(("request_gpus", gpus.to_string()));
    }
    if !lines.is_empty() {
        section(text, &lines);
    }
    if let (Some(gpus), Some((first, end))) = (request.gpus, by_proc) {
        text.push_str("# A parameter server needs no GPU.\n");
        let is_ps = match first {
            0 => format!("$(Process) < {end}"),
            _ => format!("$(Process) >= {first} && $(Process) < {end}"),
        };
        let each = format!("ifThenElse({is_ps}, 0, {gpus})");
        section(text, &[("gpus", each), ("request_gpus", "$INT(gpus)".to_owned())]);
    }
}

/// What runs: rallypoint itself, or a shell that sets up the environment first.
fn program(request: &Request, work: &Work) -> Vec<(&'static str, String)> {
    let transfers = request.transfer.is_some();
    let own = work.command.first().cloned().unwrap_or_default();
    let rest = work.command.get(1..).unwrap_or_default();
    let (executable, arguments, transfer_executable) = match &work.setup {
        None => (own, rest.to_vec(), transfers),
        Some(setup) => {
            let name = own.rsplit('/').next().unwrap_or(&own).to_owned();
            // Files that go with the job stand in its working directory.
            let own = if transfers { format!("./{name}") } else { own };
            let command: Vec<String> = std::iter::once(own).chain(rest.iter().cloned()).collect();
            let mut script = vec!["set -e".to_owned()];
            script.extend(
                setup.lines.iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()),
            );
            script.push(format!("exec {}", shell::line(&command)));
            ("/bin/bash".to_owned(), vec!["-c".to_owned(), on_one_line(&script)], false)
        }
    };
    vec![
        ("executable", macro_text(&executable)),
        ("transfer_executable", title(transfer_executable)),
        ("arguments", quoted(&arguments)),
        // HTCondor may give a job neither.
        ("getenv", "PATH, HOME".to_owned()),
    ]
}

fn files(text: &mut String, request: &Request) {
    match &request.transfer {
        None => {
            text.push_str("# The execute hosts see this directory. Members find each other through it.\n");
            section(text, &[("should_transfer_files", "NO".to_owned())]);
        }
        Some(files) => {
            let way = match request.universe {
                Universe::Vanilla => "through the submit directory",
                Universe::Parallel => "through the job's ad",
            };
            text.push_str(&format!("# No shared file system: files go with the job, and members find each other {way}, by chirp.\n"));
            let mut lines = vec![
                ("should_transfer_files", "YES".to_owned()),
                ("when_to_transfer_output", "ON_EXIT".to_owned()),
            ];
            if !files.is_empty() {
                lines.push(("transfer_input_files", macro_text(&files.join(", "))));
            }
            lines.push(("+WantIOProxy", "True".to_owned()));
            section(text, &lines);
        }
    }
}

fn ending(text: &mut String, request: &Request) {
    // SIGTERM reaches rallypoint alone, which passes it on and waits for --grace.
    let mut lines = vec![("job_max_vacate_time", (request.grace + 15).to_string())];
    match request.universe {
        Universe::Vanilla if request.retries > 0 => {
            lines.push(("max_retries", request.retries.to_string()));
            if request.retry_failures {
                text.push_str(
                    "# One that fails or is evicted ends the job for all, and all are started again.\n",
                );
            } else {
                text.push_str("# A member that is evicted or lost ends the job for all, with 193 to 198, and all are started again.\n");
                text.push_str("# What the program itself fails with is final.\n");
                lines.push(("retry_until", "ExitCode < 193 || ExitCode > 198".to_owned()));
            }
        }
        Universe::Vanilla => {}
        Universe::Parallel => {
            text.push_str("# Node 0 waits for all, and its exit code is the job's.\n");
            lines.push(("machine_count", request.members.to_string()));
            lines.push(("+ParallelShutdownPolicy", "\"WAIT_FOR_ALL\"".to_owned()));
        }
    }
    section(text, &lines);
}

/// `name = value` lines with the signs below each other, and an empty line.
fn section(text: &mut String, lines: &[(&str, String)]) {
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in lines {
        text.push_str(&format!("{name:width$} = {value}\n"));
    }
    text.push('\n');
}

/// Lines of shell on one, since arguments have no line breaks. What would change its meaning between
/// semicolons goes into `$'...'`, which bash reads back as the lines that they were.
fn on_one_line(lines: &[String]) -> String {
    if lines.iter().all(|line| is_simple(line)) {
        return lines.join("; ");
    }
    let text = lines.join("\n").replace('\\', r"\\").replace('\'', r"\'").replace('\r', "");
    format!("eval $'{}'", text.replace('\n', r"\n"))
}

/// True if a line is a command of its own, without a comment and without a part on another line.
fn is_simple(line: &str) -> bool {
    const COMPOUND: [&str; 19] = [
        "if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "case", "esac", "select",
        "function", "{", "}", "(", ")", "!",
    ];
    let mut words = line.split_whitespace();
    let ends = [words.next(), words.next_back()];
    !ends.iter().flatten().any(|word| COMPOUND.contains(word))
        && !line.contains(['#', '\n', '\r'])
        && !line.contains("<<")
        && !line.ends_with(['\\', '&', '|', ';', '{', '(', ')'])
}

/// HTCondor's own quoting: double quotes around all, single quotes around a word that needs them, and a
/// quote inside is written twice.
fn quoted(words: &[String]) -> String {
    let word = |word: &String| {
        let word = shell::one_line(word).replace('"', "\"\"");
        let plain = !word.is_empty() && !word.contains([' ', '\t', '\'']);
        if plain { word } else { format!("'{}'", word.replace('\'', "''")) }
    };
    let line = words.iter().map(word).collect::<Vec<_>>().join(" ");
    macro_text(&format!("\"{line}\""))
}

/// `$(name)` would be replaced by HTCondor, and `$INT(name)` and the like.
fn macro_text(text: &str) -> String {
    match text.contains('(') {
        true => shell::one_line(text).replace('$', "$(DOLLAR)"),
        false => shell::one_line(text),
    }
}

fn title(yes: bool) -> String {
    if yes { "True".to_owned() } else { "False".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::submit::Setup;

    fn words(text: &str) -> Vec<String> {
        crate::shell::words(text).unwrap()
    }

    fn request() -> Request {
        Request {
            roles: "1 ps, 2 workers".to_owned(),
            members: 3,
            name: "train".to_owned(),
            resources: vec![("request_cpus", "4".to_owned()), ("request_memory", "8GB".to_owned())],
            retries: 5,
            grace: 10,
            ..Request::default()
        }
    }

    fn work() -> Work {
        Work {
            setup: None,
            command: words("/opt/bin/rallypoint run --ps 1 --workers 2 -- python train.py --note 'a \"b\"'"),
            made_by: words("rallypoint submit htcondor --ps 1 --workers 2 -- python train.py"),
        }
    }

    #[test]
    fn procs_on_a_shared_file_system() {
        let request = Request { gpus: Some(1), without_gpus: Some((0, 1)), ..request() };
        insta::assert_snapshot!(description(&request, &work()));
    }

    #[test]
    fn nodes_without_a_shared_file_system() {
        let request = Request {
            universe: Universe::Parallel,
            transfer: Some(words("train.py data.npz")),
            logs: "logs".to_owned(),
            gpus: Some(2),
            more: words("'accounting_group = physics'"),
            ..request()
        };
        insta::assert_snapshot!(description(&request, &work()));
    }

    #[test]
    fn an_environment_is_set_up_first() {
        let setup = Setup {
            name: "tf".to_owned(),
            lines: words("'module load tensorflow' 'export A=\"b c\"'"),
            origin: "rallypoint.toml".to_owned(),
        };
        let request =
            Request { transfer: Some(words("/opt/bin/rallypoint train.py")), retries: 0, ..request() };
        insta::assert_snapshot!(description(&request, &Work { setup: Some(setup), ..work() }));
    }

    #[test]
    fn lines_that_need_their_breaks_keep_them() {
        let line =
            |lines: &[&str]| on_one_line(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>());
        assert_eq!(line(&["set -e", "module load tf", "exec x"]), "set -e; module load tf; exec x");
        assert_eq!(line(&["module load tf # 2.17", "exec x"]), r"eval $'module load tf # 2.17\nexec x'");
        assert_eq!(line(&["if a", "then b", "fi", "exec x"]), r"eval $'if a\nthen b\nfi\nexec x'");
        assert_eq!(line(&["a \\", "'b'", "exec x"]), r"eval $'a \\\n\'b\'\nexec x'");
        assert_eq!(line(&["a\r\nb", "exec x"]), r"eval $'a\nb\nexec x'");
    }

    #[test]
    fn what_htcondor_would_replace_stays() {
        assert_eq!(
            quoted(&words("echo '$(HOME) $X' \"it's\"")),
            "\"echo '$(DOLLAR)(HOME) $(DOLLAR)X' 'it''s'\""
        );
        assert_eq!(quoted(&words("sh -c 'echo $HOME'")), "\"sh -c 'echo $HOME'\"");
        assert_eq!(quoted(&words("a '' 'b\nqueue 9'")), "\"a '' 'b queue 9'\"");
    }
}
