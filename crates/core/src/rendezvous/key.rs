//! The job's key: 256 bits that every agent of the job knows and nobody else.

use super::RendezvousError;
use std::fmt;
use std::path::Path;

/// A secret that proves membership. Printed only as `Key(...)`.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(...)")
    }
}

impl Key {
    /// A new one from the system's random numbers.
    pub fn random() -> Result<Key, RendezvousError> {
        random_bytes().map(Key)
    }

    /// Reads `RALLYPOINT_KEY_FILE`: 64 hexadecimal digits, or any secret of at least 16 bytes.
    ///
    /// A file that others may read is refused: whoever knows the key may join the job.
    pub fn from_file(path: &Path) -> Result<Key, RendezvousError> {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let bad = |reason: String| RendezvousError::KeyFile { path: path.to_owned(), reason };
        let meta = path.metadata().map_err(|error| bad(error.to_string()))?;
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(bad(format!("it belongs to user {}, not to you", meta.uid())));
        }
        if meta.permissions().mode() & 0o077 != 0 {
            return Err(bad("others may read it; chmod 600".to_owned()));
        }
        if meta.len() > 4096 {
            return Err(bad("more than 4096 bytes are no key".to_owned()));
        }
        let bytes = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
        let text = bytes.trim_ascii();
        if let Some(key) = std::str::from_utf8(text).ok().and_then(Key::from_hex) {
            return Ok(key);
        }
        if text.len() < 16 {
            return Err(bad("a key has at least 16 bytes".to_owned()));
        }
        Ok(Key(*blake3::hash(text).as_bytes()))
    }

    pub(super) fn from_hex(text: &str) -> Option<Key> {
        blake3::Hash::from_hex(text).ok().map(|hash| Key(*hash.as_bytes()))
    }

    pub(super) fn to_hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// A keyed hash over several parts. `Hash` compares in constant time.
    pub(super) fn mac(&self, purpose: &[u8], parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(purpose);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        hasher.finalize()
    }

    /// A key for one connection.
    pub(super) fn derive(&self, parts: &[&[u8]]) -> Key {
        Key(*self.mac(b"rallypoint session", parts).as_bytes())
    }
}

/// 32 unpredictable bytes.
pub(super) fn random_bytes() -> Result<[u8; 32], RendezvousError> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| RendezvousError::Io(error.into()))?;
    }
    Ok(bytes)
}
