//! Frames that nobody but the two ends of a connection can read, change, repeat, reorder or send back.
//!
//! ChaCha20-Poly1305, with one key per connection and direction. The number of a frame is its nonce: it is never sent, and
//! never used twice under one key. A frame's length is sealed with it.
//!
//! What goes to thousands of members unchanged, the roster, is sealed once ([`Shared`]).

use super::RendezvousError;
use super::key::{Key, random_bytes};
use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit, Nonce, Tag};
use std::sync::Arc;

/// What a seal adds to a frame.
pub(super) const TAG: usize = 16;

/// Which way frames go; each has a key of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToLeader,
    ToMember,
}

/// One direction of one connection.
pub(super) struct Seal {
    cipher: ChaCha20Poly1305,
    /// The number of the next frame.
    next: u64,
}

/// Content that is sealed once for many connections, under a key of its own. Each connection is told that key in a frame of
/// its own, so that what holds for a frame holds for the content too: nobody else can read, change or repeat it.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    pub(super) key: Key,
    /// With its tag.
    pub(super) sealed: Arc<[u8]>,
}

/// A frame that was changed, or is not the next one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Broken;

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Seal {
    /// `connection` is the key that both ends have agreed on for this connection alone.
    pub(super) fn new(connection: &Key, direction: Direction) -> Seal {
        let purpose: &[u8] = match direction {
            Direction::ToLeader => b"to leader",
            Direction::ToMember => b"to member",
        };
        let key = connection.mac(purpose, &[]);
        Seal { cipher: ChaCha20Poly1305::new(key.as_bytes().into()), next: 0 }
    }

    /// Seals the content that stands behind the frame's length, and appends the tag.
    pub(super) fn close(&mut self, frame: &mut Vec<u8>) -> Result<(), Broken> {
        let (length, content) = frame.split_first_chunk_mut::<4>().ok_or(Broken)?;
        let tag = self.cipher.encrypt_inout_detached(&nonce(self.next), length, content.into());
        frame.extend_from_slice(&tag.map_err(|_| Broken)?);
        self.next += 1;
        Ok(())
    }

    /// Opens what came behind a frame's length, and takes its tag off.
    pub(super) fn open(&mut self, length: [u8; 4], sealed: &mut Vec<u8>) -> Result<(), Broken> {
        let size = sealed.len().checked_sub(TAG).ok_or(Broken)?;
        let (content, tag) = sealed.split_at_mut(size);
        let tag = Tag::try_from(&*tag).map_err(|_| Broken)?;
        self.cipher
            .decrypt_inout_detached(&nonce(self.next), &length, content.into(), &tag)
            .map_err(|_| Broken)?;
        sealed.truncate(size);
        self.next += 1;
        Ok(())
    }
}

impl Shared {
    /// Under a new key, which seals nothing else.
    pub(super) fn new(mut content: Vec<u8>) -> Result<Shared, RendezvousError> {
        let key = Key::from_bytes(random_bytes()?);
        let cipher = ChaCha20Poly1305::new(key.bytes().into());
        let tag = cipher
            .encrypt_inout_detached(&nonce(0), &[], content.as_mut_slice().into())
            .map_err(|_| std::io::Error::other("a roster of too many bytes"))?;
        content.extend_from_slice(&tag);
        Ok(Shared { key, sealed: content.into() })
    }

    /// What `new` was given.
    pub(super) fn open(key: &[u8; 32], sealed: &mut Vec<u8>) -> Result<(), Broken> {
        let size = sealed.len().checked_sub(TAG).ok_or(Broken)?;
        let (content, tag) = sealed.split_at_mut(size);
        let tag = Tag::try_from(&*tag).map_err(|_| Broken)?;
        let cipher = ChaCha20Poly1305::new(key.into());
        cipher.decrypt_inout_detached(&nonce(0), &[], content.into(), &tag).map_err(|_| Broken)?;
        sealed.truncate(size);
        Ok(())
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as it goes out, and then what stands behind its length.
    fn sealed(seal: &mut Seal, content: &[u8]) -> ([u8; 4], Vec<u8>) {
        let length = ((content.len() + TAG) as u32).to_be_bytes();
        let mut frame = [&length, content].concat();
        seal.close(&mut frame).unwrap();
        (length, frame[4..].to_vec())
    }

    #[test]
    fn what_is_sealed_cannot_be_read_and_opens_once() {
        let key = Key::random().unwrap();
        let (mut writer, mut reader) =
            (Seal::new(&key, Direction::ToLeader), Seal::new(&key, Direction::ToLeader));
        let secret = b"a secret of sixteen bytes and more";
        let (length, first) = sealed(&mut writer, secret);
        let (_, second) = sealed(&mut writer, secret);
        assert_eq!(first.len(), secret.len() + TAG);
        assert!(!first.windows(8).any(|part| secret.windows(8).any(|words| words == part)), "in the clear");
        assert_ne!(first, second, "the same words twice look different");
        let mut opened = first.clone();
        assert_eq!(reader.open(length, &mut opened), Ok(()));
        assert_eq!(opened, secret);
        assert_eq!(reader.open(length, &mut first.clone()), Err(Broken), "repeated");
        assert_eq!(reader.open(length, &mut second.clone()), Ok(()));
    }

    #[test]
    fn what_was_changed_reordered_or_sent_back_does_not_open() {
        let key = Key::random().unwrap();
        let new = |key: &Key, direction| Seal::new(key, direction);
        let mut writer = new(&key, Direction::ToLeader);
        let (length, frame) = sealed(&mut writer, b"stop");
        let (next_length, next) = sealed(&mut writer, b"kill");
        let open = |seal: &mut Seal, length, bytes: &[u8]| seal.open(length, &mut bytes.to_vec());
        for at in 0..frame.len() {
            let mut changed = frame.clone();
            changed[at] ^= 1;
            assert_eq!(open(&mut new(&key, Direction::ToLeader), length, &changed), Err(Broken), "byte {at}");
        }
        let reader = || new(&key, Direction::ToLeader);
        assert_eq!(open(&mut reader(), next_length, &next), Err(Broken), "reordered");
        assert_eq!(open(&mut reader(), [0; 4], &frame), Err(Broken), "another length");
        assert_eq!(open(&mut reader(), length, &frame[..10]), Err(Broken), "shorter than a tag");
        assert_eq!(open(&mut new(&key, Direction::ToMember), length, &frame), Err(Broken), "sent back");
        let other = Key::random().unwrap();
        assert_eq!(open(&mut new(&other, Direction::ToLeader), length, &frame), Err(Broken), "another key");
        assert_eq!(open(&mut reader(), length, &frame), Ok(()));
    }

    #[test]
    fn what_is_shared_opens_with_its_own_key_alone() {
        let secret = b"a roster of sixteen bytes and more";
        let (one, other) = (Shared::new(secret.to_vec()).unwrap(), Shared::new(secret.to_vec()).unwrap());
        assert_ne!(one.sealed, other.sealed);
        assert!(
            !one.sealed.windows(8).any(|part| secret.windows(8).any(|words| words == part)),
            "in the clear"
        );
        let open = |key: &Key, sealed: &[u8]| {
            let mut sealed = sealed.to_vec();
            Shared::open(key.bytes(), &mut sealed).map(|()| sealed)
        };
        assert_eq!(open(&one.key, &one.sealed), Ok(secret.to_vec()));
        assert_eq!(open(&one.key, &other.sealed), Err(Broken), "another's key");
        assert_eq!(open(&one.key, &one.sealed[1..]), Err(Broken), "cut");
        assert_eq!(open(&one.key, &one.sealed[..10]), Err(Broken), "shorter than a tag");
        for at in 0..one.sealed.len() {
            let mut changed = one.sealed.to_vec();
            changed[at] ^= 1;
            assert_eq!(open(&one.key, &changed), Err(Broken), "byte {at}");
        }
    }
}
