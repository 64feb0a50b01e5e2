//! What to do about an error, told in the words of whoever asks.
//!
//! An error's text says what is wrong. Its hint names settings as values: the command spells them `--meet-timeout`, Python
//! `timeout=`. Where an error travels as text, to another agent say, [`in_full`] writes both into one line, and
//! `problem_of` and `hint_of` take them apart again.

use std::borrow::Cow;
use std::error::Error;

macro_rules! settings {
    ($($variant:ident = $name:literal of $command:literal,)*) => {
        /// What a front end lets one choose, and a hint may name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Setting {
            $(#[doc = concat!("`--", $name, "` of `", $command, "`")] $variant,)*
        }

        impl Setting {
            /// All of them, by name.
            pub const ALL: &[Setting] = &[$(Setting::$variant,)*];

            /// `meet-timeout`
            pub fn name(self) -> &'static str {
                match self {
                    $(Setting::$variant => $name,)*
                }
            }

            /// The command that has it, `run` where several do.
            pub fn command(self) -> &'static str {
                match self {
                    $(Setting::$variant => $command,)*
                }
            }
        }
    };
}

settings! {
    Chief = "chief" of "run",
    Config = "config" of "serve",
    DryRun = "dry-run" of "run",
    Env = "env" of "submit slurm",
    Events = "events" of "run",
    Framework = "framework" of "run",
    GpusPerNode = "gpus-per-node" of "run",
    GpusPerTask = "gpus-per-task" of "run",
    GrpcOption = "grpc-option" of "serve",
    HostMap = "host-map" of "run",
    HostSuffix = "host-suffix" of "run",
    Interface = "interface" of "run",
    Job = "job" of "run",
    JobAd = "job-ad" of "plan",
    Launched = "launched" of "run",
    Line = "line" of "submit htcondor",
    LogDir = "log-dir" of "run",
    LogErrors = "log-errors" of "run",
    Meet = "meet" of "run",
    MeetTimeout = "meet-timeout" of "run",
    Network = "network" of "run",
    On = "on" of "run",
    Place = "place" of "run",
    PortBase = "port-base" of "run",
    PortRange = "port-range" of "run",
    Ps = "ps" of "run",
    PsGpus = "ps-gpus" of "run",
    Rank = "rank" of "run",
    Restart = "restart" of "run",
    Roles = "roles" of "run",
    Sbatch = "sbatch" of "submit slurm",
    Serve = "serve" of "run",
    ServerDef = "server-def" of "serve",
    StandIn = "stand-in" of "run",
    TasksPerNode = "tasks-per-node" of "plan",
    Tensorflow = "tensorflow" of "run",
    TfConfig = "tf-config" of "serve",
    Tolerate = "tolerate" of "run",
    Until = "until" of "run",
    Workers = "workers" of "run",
}

impl Setting {
    /// The setting with a value: `--until all`
    pub fn with(self, value: impl Into<Cow<'static, str>>) -> Piece {
        Piece::Setting(self, Some(value.into()))
    }

    /// `--until all`, as one types it for the command.
    pub fn typed(self, value: Option<&str>) -> String {
        let name = self.name();
        match value {
            None => format!("--{name}"),
            // `--sbatch --qos=shared` would be two options.
            Some(value) if value.trim_start_matches(['"', '\'']).starts_with('-') => {
                format!("--{name}={value}")
            }
            Some(value) => format!("--{name} {value}"),
        }
    }
}

/// A part of a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Words that are the same for every front end.
    Text(Cow<'static, str>),
    /// A setting, perhaps with a value, that each front end spells its own way.
    Setting(Setting, Option<Cow<'static, str>>),
}

impl From<&'static str> for Piece {
    fn from(text: &'static str) -> Piece {
        Piece::Text(text.into())
    }
}

impl From<String> for Piece {
    fn from(text: String) -> Piece {
        Piece::Text(text.into())
    }
}

impl From<Setting> for Piece {
    fn from(setting: Setting) -> Piece {
        Piece::Setting(setting, None)
    }
}

/// What to do about an error: text, with settings in between. [`hint!`](crate::hint!) makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    pieces: Vec<Piece>,
}

impl Hint {
    /// One of these parts, in their order.
    pub fn new(pieces: impl Into<Vec<Piece>>) -> Hint {
        Hint { pieces: pieces.into() }
    }

    /// The hint with each setting as `spell` writes it; a setting may come with a value.
    pub fn spelled(&self, spell: impl Fn(Setting, Option<&str>) -> String) -> String {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.to_string(),
                Piece::Setting(setting, value) => spell(*setting, value.as_deref()),
            })
            .collect()
    }

    /// As the command spells it.
    pub fn typed(&self) -> String {
        self.spelled(Setting::typed)
    }
}

/// A hint of text, settings and settings with a value, in their order.
///
/// ```
/// use rallypoint::hint;
/// use rallypoint::hint::Setting;
///
/// let longer = hint!(Setting::MeetTimeout, " gives them longer");
/// assert_eq!(longer.typed(), "--meet-timeout gives them longer");
/// let all = hint!("use ", Setting::Workers.with("rest"), " for all the others");
/// assert_eq!(all.typed(), "use --workers rest for all the others");
/// ```
#[macro_export]
macro_rules! hint {
    ($($piece:expr),+ $(,)?) => {
        $crate::hint::Hint::new([$($crate::hint::Piece::from($piece)),+])
    };
}

/// An error that may know what to do about it. Its text names no setting of a front end.
pub trait Hinted: Error {
    /// What to do about it, where that is known.
    fn hint(&self) -> Option<Hint>;
}

/// Any error that may have a hint.
pub type AnyError = Box<dyn Hinted + Send + Sync>;

impl<E: Hinted + Send + Sync + 'static> From<E> for AnyError {
    fn from(error: E) -> AnyError {
        Box::new(error)
    }
}

impl Hinted for std::io::Error {
    fn hint(&self) -> Option<Hint> {
        None
    }
}

impl Hinted for serde_json::Error {
    fn hint(&self) -> Option<Hint> {
        None
    }
}

/// What stands between a problem and its hint where both are one text.
const BETWEEN: &str = "; hint: ";

/// An error and its hint in one text, as the command spells it: for other agents, and for reports.
pub fn in_full(error: &dyn Hinted) -> String {
    together(error.to_string(), error.hint().as_ref())
}

/// A problem and its hint in one text, as the command spells it.
pub(crate) fn together(problem: String, hint: Option<&Hint>) -> String {
    match hint {
        Some(hint) => format!("{problem}{BETWEEN}{}", hint.typed()),
        None => problem,
    }
}

/// The problem in a text that another agent made with [`in_full`].
pub(crate) fn problem_of(told: &str) -> &str {
    told.split_once(BETWEEN).map_or(told, |(problem, _)| problem)
}

/// The hint in a text that another agent made with [`in_full`], in its words.
pub(crate) fn hint_of(told: &str) -> Option<Hint> {
    told.split_once(BETWEEN).map(|(_, hint)| Hint::new([Piece::from(hint.to_owned())]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[derive(Debug, thiserror::Error)]
    #[error("two have come")]
    struct TwoHaveCome;

    impl Hinted for TwoHaveCome {
        fn hint(&self) -> Option<Hint> {
            Some(hint!(Setting::MeetTimeout, " gives them longer, ", Setting::Until.with("all")))
        }
    }

    #[test]
    fn each_front_end_spells_settings_its_own_way() {
        let hint = TwoHaveCome.hint().unwrap();
        let python = |setting: Setting, value: Option<&str>| {
            format!("{}={}", setting.name().replace('-', "_"), value.unwrap_or_default())
        };
        assert_eq!(hint.spelled(python), "meet_timeout= gives them longer, until=all");
        assert_eq!(hint.typed(), "--meet-timeout gives them longer, --until all");
        assert_eq!(Setting::Sbatch.typed(Some("\"--qos=shared\"")), "--sbatch=\"--qos=shared\"");
    }

    #[test]
    fn what_travels_is_taken_apart_again() {
        let text = in_full(&TwoHaveCome);
        assert_eq!(text, "two have come; hint: --meet-timeout gives them longer, --until all");
        assert_eq!(problem_of(&text), "two have come");
        assert_eq!(hint_of(&text).unwrap().typed(), "--meet-timeout gives them longer, --until all");
        assert_eq!((problem_of("no"), hint_of("no")), ("no", None));
    }

    #[test]
    fn names_are_kebab_case_and_stand_once() {
        let names: BTreeSet<&str> = Setting::ALL.iter().map(|setting| setting.name()).collect();
        assert_eq!(names.len(), Setting::ALL.len());
        for name in names {
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{name}");
        }
    }
}
