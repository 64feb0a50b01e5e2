//! One `rallypoint.toml`, as it is written. Pure, and without the rest of the command: a fuzzer reads this file too.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Options by their names, without the dashes.
pub(super) type Defaults = BTreeMap<String, toml::Value>;

/// What stands in a file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) run: Defaults,
    pub(super) submit: BTreeMap<String, Defaults>,
    pub(super) env: BTreeMap<String, Environment>,
}

/// `[env.NAME]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Environment {
    pub(super) setup: Vec<String>,
}

/// What the text says, or why it says nothing: `line 3: unknown field`.
pub(super) fn parse(text: &str) -> Result<File, String> {
    toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        format!("{place}{}", error.message())
    })
}
