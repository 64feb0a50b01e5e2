//! TensorFlow's place and version, without importing it (that takes seconds).

use crate::environ::Environ;
use crate::machine::{find_on_path, run_with_limit};
use crate::variables as var;
use serde::Serialize;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Where TensorFlow is, if anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorFlowReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Which Python was asked, or why none could be.
    pub how: String,
}

const LIMIT: Duration = Duration::from_secs(10);

/// Finds the package and reads its metadata; prints nothing if it is not there.
const QUESTION: &str = "
import importlib.util, importlib.metadata
spec = importlib.util.find_spec('tensorflow')
if spec is not None and spec.submodule_search_locations:
    version = ''
    for name in ('tensorflow', 'tensorflow-cpu', 'tensorflow-intel', 'tensorflow-rocm', 'tf-nightly'):
        try:
            version = importlib.metadata.version(name)
            break
        except importlib.metadata.PackageNotFoundError:
            pass
    print(list(spec.submodule_search_locations)[0])
    print(version)
";

pub(super) fn find(environ: &Environ) -> TensorFlowReport {
    let absent = |how: String| TensorFlowReport { path: None, version: None, how };
    let Some(python) = python(environ) else {
        return absent("there is no python3 on PATH".to_owned());
    };
    let answer = run_with_limit(Command::new(&python).args(["-c", QUESTION]), LIMIT);
    match answer {
        Err(reason) => absent(format!("{}: {reason}", python.display())),
        Ok(text) => {
            let mut lines = text.lines();
            let path = lines.next().map(str::to_owned);
            let version = lines.next().filter(|version| !version.is_empty()).map(str::to_owned);
            TensorFlowReport { path, version, how: format!("asked {}", python.display()) }
        }
    }
}

/// The active virtual environment's Python, or the one on PATH.
fn python(environ: &Environ) -> Option<PathBuf> {
    let of_venv = environ.get_nonempty(var::VIRTUAL_ENV).map(|venv| PathBuf::from(venv).join("bin/python3"));
    of_venv.filter(|python| python.exists()).or_else(|| find_on_path("python3", environ.get(var::PATH)))
}
