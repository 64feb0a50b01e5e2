//! TensorFlow's place and version, without importing it (that takes seconds).

use crate::environ::Environ;
use crate::serve::find::{ask, python};
use serde::Serialize;

/// Where TensorFlow is, if anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TensorFlowReport {
    /// Its folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// As its package says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Which Python was asked, or why none could be.
    pub how: String,
}

pub(super) fn find(environ: &Environ) -> TensorFlowReport {
    let absent = |how: String| TensorFlowReport { path: None, version: None, how };
    let Some(python) = python(environ) else {
        return absent("there is no python3 on PATH".to_owned());
    };
    let how = format!("asked {}", python.display());
    match ask(&python) {
        Err(reason) => absent(format!("{}: {reason}", python.display())),
        Ok(None) => absent(how),
        Ok(Some(package)) => TensorFlowReport {
            path: Some(package.folder.display().to_string()),
            version: package.version,
            how,
        },
    }
}
