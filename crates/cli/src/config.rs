//! `rallypoint.toml`: named environments, and defaults for what may be typed.
//!
//! ```toml
//! [run]                      # as if typed behind `rallypoint run`; what is typed wins
//! grace = "60s"
//!
//! [submit.slurm]             # the same for `rallypoint submit slurm`
//! partition = "gpu"
//! sbatch = ["--qos=shared"]
//!
//! [env.tf17-py3]             # --env tf17-py3
//! setup = ["module load tensorflow/1.7", "source ~/venv/bin/activate"]
//! ```
//!
//! Looked for in this order, the nearer one wins, name by name: the file that `RALLYPOINT_CONFIG` names;
//! `rallypoint.toml` in the working directory; `rallypoint/rallypoint.toml` in `~/.config`; `/etc/rallypoint.toml`.
//! Never in parent directories, which may belong to anybody: the setup lines are run. For the same reason a file is
//! obeyed only if it belongs to this user or to root, and nobody else may write it.

#[cfg(test)]
mod any_bytes;
mod file;

use crate::args::Args;
use crate::exit::Failure;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory};
use file::File;
use rallypoint::hint;
use rallypoint::hint::{Hint, Hinted};
use rallypoint::scheduler::submit::Setup;
use rallypoint::variables as var;
use rustix::fs::OFlags;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Debug, Error)]
pub(crate) enum ConfigError {
    #[error("cannot read {}: {source}", file.display())]
    Unreadable { file: PathBuf, source: std::io::Error },
    #[error("{} {problem}, and lines of such a file are run", file.display())]
    NotYours { file: PathBuf, problem: String, fix: String },
    #[error("{} is no regular file", file.display())]
    NoFile { file: PathBuf },
    #[error("{}: {reason}", file.display())]
    Nonsense { file: PathBuf, reason: String },
    #[error("{}: [{table}] {key}: {reason}", file.display())]
    BadDefault { file: PathBuf, table: String, key: String, reason: String },
    #[error("there is no environment called {name}; {known}")]
    NoEnvironment { name: String, known: String },
}

impl Hinted for ConfigError {
    fn hint(&self) -> Option<Hint> {
        match self {
            ConfigError::NotYours { fix, .. } => Some(hint!(fix.clone())),
            ConfigError::NoEnvironment { name, .. } => {
                Some(hint!(format!("write [env.{name}] setup = [\"module load ...\"] in rallypoint.toml")))
            }
            ConfigError::Unreadable { .. }
            | ConfigError::NoFile { .. }
            | ConfigError::Nonsense { .. }
            | ConfigError::BadDefault { .. } => None,
        }
    }
}

/// What the files say, the nearest first.
#[derive(Debug, Default)]
pub(crate) struct Config {
    files: Vec<(PathBuf, File)>,
}

impl Config {
    pub(crate) fn read() -> Result<Config, ConfigError> {
        let mut files = Vec::new();
        if let Some(named) = std::env::var_os(var::RALLYPOINT_CONFIG).filter(|name| !name.is_empty()) {
            files.push((PathBuf::from(named), true));
        }
        files.push((PathBuf::from("rallypoint.toml"), false));
        let home = std::env::var_os(var::XDG_CONFIG_HOME)
            .map(PathBuf::from)
            .or_else(|| Some(Path::new(&std::env::var_os(var::HOME)?).join(".config")));
        files.extend(home.map(|home| (home.join("rallypoint/rallypoint.toml"), false)));
        files.push((PathBuf::from("/etc/rallypoint.toml"), false));
        let mut config = Config::default();
        for (path, must_exist) in files {
            match read_own(&path) {
                Ok(text) => {
                    let file = parse(&path, &text?)?;
                    config.files.push((path, file));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_exist => {}
                Err(source) => return Err(ConfigError::Unreadable { file: path, source }),
            }
        }
        Ok(config)
    }

    /// The setup lines of an environment.
    pub(crate) fn environment(&self, name: &str) -> Result<Setup, ConfigError> {
        let found = self.files.iter().find_map(|(path, file)| Some((path, file.env.get(name)?)));
        match found {
            Some((path, environment)) => Ok(Setup {
                name: name.to_owned(),
                lines: environment.setup.clone(),
                origin: path.display().to_string(),
            }),
            None => {
                let mut names: Vec<&str> = Vec::new();
                for name in self.files.iter().flat_map(|(_, file)| file.env.keys()) {
                    if !names.contains(&name.as_str()) {
                        names.push(name);
                    }
                }
                let known = match names.is_empty() {
                    true => "none is known".to_owned(),
                    false => format!("there are {}", names.join(", ")),
                };
                Err(ConfigError::NoEnvironment { name: name.to_owned(), known })
            }
        }
    }

    /// What was typed, with the files' defaults for what was not. `command` is what `matches` came from.
    fn complete(
        &self,
        typed: Vec<OsString>,
        command: &Command,
        matches: &ArgMatches,
    ) -> Result<Vec<OsString>, Failure> {
        let mut path = Vec::new();
        let (mut matches, mut command) = (matches, command);
        while let Some((name, below)) = matches.subcommand() {
            let Some(subcommand) = command.find_subcommand(name) else { break };
            path.push(name);
            (matches, command) = (below, subcommand);
        }
        let mut added: Vec<OsString> = Vec::new();
        let mut done: Vec<String> = Vec::new();
        for (file, content) in &self.files {
            let defaults = match path.as_slice() {
                ["run"] => Some(&content.run),
                ["submit", scheduler] => content.submit.get(*scheduler),
                _ => None,
            };
            for (key, value) in defaults.into_iter().flatten() {
                let words = default_words(key, value, command).map_err(|reason| ConfigError::BadDefault {
                    file: file.clone(),
                    table: path.join("."),
                    key: key.clone(),
                    reason,
                })?;
                if !done.contains(key) && !is_overruled(key, command, matches) {
                    added.extend(words);
                    done.push(key.clone());
                }
            }
        }
        let mut complete = typed;
        let before_options = 1 + path.len();
        complete.splice(before_options..before_options, added);
        Ok(complete)
    }
}

/// What was typed, with the defaults of the files for what was not.
pub(crate) fn complete(typed: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let (command, Some(matches)) = so_far(&typed) else { return Ok(typed) };
    match matches.subcommand_name() {
        Some("run" | "submit") => Config::read()?.complete(typed, &command, &matches),
        _ => Ok(typed),
    }
}

/// What was typed as far as it can be understood without the files: an option may require another one that
/// stands there. What cannot be parsed at all is reported by the parse that counts.
fn so_far(typed: &[OsString]) -> (Command, Option<ArgMatches>) {
    let mut command = Args::command().ignore_errors(true);
    let matches = command.try_get_matches_from_mut(typed).ok();
    command.build();
    (command, matches)
}

/// The text of a file that only this user, or root, can have written.
fn read_own(path: &Path) -> std::io::Result<Result<String, ConfigError>> {
    let me = rustix::process::geteuid().as_raw();
    let trusted = |meta: &std::fs::Metadata| match mistrust(meta.uid(), meta.mode(), me, path) {
        None => Ok(()),
        Some((problem, fix)) => Err(ConfigError::NotYours { file: path.to_owned(), problem, fix }),
    };
    // A named pipe would be waited at, for as long as nobody writes to it.
    let mut file =
        std::fs::File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let meta = file.metadata()?;
    if let Err(error) = trusted(&meta) {
        return Ok(Err(error));
    }
    if !meta.is_file() {
        return Ok(Err(ConfigError::NoFile { file: path.to_owned() }));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(Ok(text))
}

/// Why a file is not obeyed, and what may be done about it.
fn mistrust(owner: u32, mode: u32, me: u32, path: &Path) -> Option<(String, String)> {
    if owner != me && owner != 0 {
        let problem = format!("belongs to user {owner}, neither to you (user {me}) nor to root");
        let fix = "put a copy of your own in its place if you trust it";
        let elsewhere = if path.is_relative() { ", or start rallypoint in another directory" } else { "" };
        return Some((problem, format!("{fix}{elsewhere}")));
    }
    (mode & 0o022 != 0).then(|| {
        let problem = format!("may be written by others than its owner (mode {:03o})", mode & 0o777);
        (problem, format!("chmod go-w {}", path.display()))
    })
}

fn parse(path: &Path, text: &str) -> Result<File, ConfigError> {
    file::parse(text).map_err(|reason| ConfigError::Nonsense { file: path.to_owned(), reason })
}

fn option<'a>(key: &str, command: &'a Command) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| argument.get_long() == Some(key))
}

/// `--key value`, as it would be typed.
fn default_words(key: &str, value: &toml::Value, command: &Command) -> Result<Vec<OsString>, String> {
    let option = option(key, command).ok_or("there is no such option")?;
    let takes_value = option.get_action().takes_values();
    let word = |value: &toml::Value| match value {
        toml::Value::String(text) => Ok(OsString::from(format!("--{key}={text}"))),
        toml::Value::Integer(number) => Ok(OsString::from(format!("--{key}={number}"))),
        other => Err(format!("expected text or a number, found {}", other.type_str())),
    };
    match value {
        toml::Value::Boolean(on) if !takes_value => {
            Ok(on.then(|| OsString::from(format!("--{key}"))).into_iter().collect())
        }
        _ if !takes_value => Err(format!("expected true or false, found {}", value.type_str())),
        toml::Value::Array(values) => values.iter().map(word).collect(),
        value => Ok(vec![word(value)?]),
    }
}

/// True if the option was typed, or one that excludes it.
fn is_overruled(key: &str, command: &Command, matches: &ArgMatches) -> bool {
    let typed = |argument: &Arg| {
        let id = argument.get_id().as_str();
        matches!(matches.value_source(id), Some(ValueSource::CommandLine))
    };
    let Some(option) = option(key, command) else { return true };
    let excludes = |other: &&Arg| {
        command.get_arg_conflicts_with(option).iter().any(|arg| arg.get_id() == other.get_id())
            || command.get_arg_conflicts_with(other).iter().any(|arg| arg.get_id() == option.get_id())
    };
    typed(option) || command.get_arguments().filter(excludes).any(typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(files: &[(&str, &str)]) -> Config {
        let parse =
            |(name, text): &(&str, &str)| (PathBuf::from(name), parse(Path::new(name), text).unwrap());
        Config { files: files.iter().map(parse).collect() }
    }

    fn complete(config: &Config, typed: &str) -> String {
        let typed: Vec<OsString> = typed.split(' ').map(OsString::from).collect();
        let (command, matches) = so_far(&typed);
        match config.complete(typed, &command, &matches.unwrap()) {
            Ok(words) => words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn what_is_typed_wins() {
        let config = config(&[
            ("near", "[run]\nps = 1\ngrace = '60s'\ntee = false\nquiet = true\ntolerate = ['ps', 'worker']"),
            ("far", "[run]\ngrace = '5s'\nthreads = 'off'"),
        ]);
        assert_eq!(
            complete(&config, "rallypoint run -- python train.py"),
            "rallypoint run --grace=60s --ps=1 --quiet --tolerate=ps --tolerate=worker --threads=off -- python train.py"
        );
        assert_eq!(
            complete(&config, "rallypoint run --grace 1s --roles ps,worker --tolerate x -- a --threads"),
            "rallypoint run --quiet --threads=off --grace 1s --roles ps,worker --tolerate x -- a --threads"
        );
        assert_eq!(complete(&config, "rallypoint plan --ps 2"), "rallypoint plan --ps 2");
    }

    #[test]
    fn what_a_typed_option_requires_may_stand_in_the_file() {
        let config = config(&[("f.toml", "[run]\nlog-dir = 'logs'\nmeet = 'here'\nserve = 'ps'")]);
        assert_eq!(
            complete(&config, "rallypoint run --tee --rank 0 --tensorflow /opt/tf -- a"),
            "rallypoint run --log-dir=logs --meet=here --serve=ps --tee --rank 0 --tensorflow /opt/tf -- a"
        );
        let submit = self::config(&[("f.toml", "[submit.htcondor]\nno-shared-fs = true")]);
        assert_eq!(
            complete(&submit, "rallypoint submit htcondor --input data -- a"),
            "rallypoint submit htcondor --no-shared-fs --input data -- a"
        );
    }

    #[test]
    fn files_of_others_are_not_obeyed() {
        let why = |owner, mode| {
            mistrust(owner, mode, 1000, Path::new("f.toml")).map(|(problem, fix)| format!("{problem}: {fix}"))
        };
        assert_eq!(why(1000, 0o100644), None);
        assert_eq!(why(0, 0o100644), None);
        assert_eq!(why(1000, 0o100600), None);
        let group = why(1000, 0o100664).unwrap();
        assert_eq!(group, "may be written by others than its owner (mode 664): chmod go-w f.toml");
        assert!(why(0, 0o100602).unwrap().contains("mode 602"));
        let foreign = why(1001, 0o100600).unwrap();
        assert!(
            foreign.starts_with("belongs to user 1001, neither to you (user 1000) nor to root"),
            "{foreign}"
        );
    }

    #[test]
    fn what_cannot_be_says_where() {
        let bad = |text: &str| complete(&config(&[("f.toml", text)]), "rallypoint run -- a");
        assert_eq!(bad("[run]\npss = 1"), "error: f.toml: [run] pss: there is no such option");
        assert_eq!(
            bad("[run]\nquiet = 1"),
            "error: f.toml: [run] quiet: expected true or false, found integer"
        );
        assert_eq!(bad("[run]\nps = 1.5"), "error: f.toml: [run] ps: expected text or a number, found float");
        let text = parse(Path::new("f.toml"), "[run]\n\n[envv.x]\n").unwrap_err().to_string();
        assert!(text.starts_with("f.toml: line 3: unknown field `envv`"), "{text}");
    }

    #[test]
    fn environments_have_names() {
        let config = config(&[
            ("near", "[env.tf]\nsetup = ['a']"),
            ("far", "[env.tf]\nsetup = ['b']\n[env.old]\nsetup = ['module load tensorflow/1.7']"),
        ]);
        assert_eq!(config.environment("tf").unwrap().lines, ["a"]);
        assert_eq!(config.environment("old").unwrap().origin, "far");
        let error = hint::in_full(&config.environment("tf18").unwrap_err());
        assert!(error.contains("there are tf, old; hint: write [env.tf18]"), "{error}");
    }
}
