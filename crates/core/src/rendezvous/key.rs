//! The job's key: 256 bits that every agent of the job knows and nobody else.

use super::RendezvousError;
use std::fmt;
use std::path::Path;

/// The fewest bytes of a secret that nobody can guess.
const SHORTEST: usize = 32;
/// What the bytes of a key file are used for; the same file elsewhere gives another key.
const CONTEXT: &str = "rallypoint 2026 key file of a job";

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
    pub(super) fn random() -> Result<Key, RendezvousError> {
        random_bytes().map(Key)
    }

    /// Of 32 unpredictable bytes.
    pub(super) fn from_bytes(bytes: [u8; 32]) -> Key {
        Key(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads `RALLYPOINT_KEY_FILE`: 64 hexadecimal digits, or any secret of at least 32 bytes.
    ///
    /// A file that others may read is refused: whoever knows the key may join the job. So is a short secret: one who
    /// makes a member connect to it could try pass phrases against the member's proof.
    pub(crate) fn from_file(path: &Path) -> Result<Key, RendezvousError> {
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
        Key::of_secret(text).ok_or_else(|| {
            bad(format!(
                "it has {} bytes, and a key has at least {SHORTEST} or 64 hexadecimal digits (earlier versions took 16): all members need a new one",
                text.len()
            ))
        })
    }

    /// `None` if the secret is too short.
    fn of_secret(secret: &[u8]) -> Option<Key> {
        let digits = std::str::from_utf8(secret).ok().and_then(Key::from_hex);
        let secret = match &digits {
            Some(Key(bytes)) => bytes,
            None if secret.len() < SHORTEST => return None,
            None => secret,
        };
        Some(Key(blake3::derive_key(CONTEXT, secret)))
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

/// A number that nobody else has; a system without random numbers has none.
pub(super) fn random_number() -> Option<u64> {
    let bytes = random_bytes().ok()?;
    bytes.first_chunk().copied().map(u64::from_be_bytes)
}

/// 32 unpredictable bytes.
pub(super) fn random_bytes() -> Result<[u8; 32], RendezvousError> {
    #[cfg(feature = "simulation")]
    if let Some(bytes) = crate::simulated::random_bytes() {
        return Ok(bytes);
    }
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| RendezvousError::Io(error.into()))?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_long_and_derived() {
        let digits = "0123456789abcdef".repeat(4);
        let phrase = "correct horse battery staple, and more";
        for secret in [digits.as_str(), phrase] {
            let key = Key::of_secret(secret.as_bytes()).unwrap();
            assert_ne!(key.to_hex(), secret);
            assert_ne!(key.to_hex(), blake3::hash(secret.as_bytes()).to_hex().to_string(), "a plain hash");
        }
        let upper = digits.to_uppercase();
        assert_eq!(Key::of_secret(digits.as_bytes()), Key::of_secret(upper.as_bytes()));
        assert_eq!(Key::of_secret(&[7; 31]), None);
        assert!(Key::of_secret(&[7; 32]).is_some());
    }

    #[test]
    fn a_key_file_of_an_earlier_version_says_what_to_do() {
        use std::os::unix::fs::OpenOptionsExt;
        let path = std::env::temp_dir().join(format!("rallypoint-key-{}", std::process::id()));
        _ = std::fs::remove_file(&path);
        let mut options = std::fs::File::options();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&path).unwrap();
        std::io::Write::write_all(&mut file, b"sixteen bytes ok\n").unwrap();
        let text = crate::hint::in_full(&Key::from_file(&path).unwrap_err());
        std::fs::remove_file(&path).unwrap();
        for words in ["it has 16 bytes", "at least 32", "all members need a new one", "hint: make one with"] {
            assert!(text.contains(words), "{text}");
        }
    }
}
