//! The leader's connections to its members: found by rank to say something, by number when something came.

use super::connections::Remote;
use std::collections::{BTreeMap, HashMap};

/// One connection per rank, in the order of the ranks. A job of ten thousand hears ten thousand messages, so neither look-up is
/// a search.
#[derive(Debug, Default)]
pub struct Remotes {
    by_rank: BTreeMap<u32, Remote>,
    ranks: HashMap<u64, u32>,
}

impl Remotes {
    /// The connection of a rank; an earlier one of the same rank is forgotten.
    pub(crate) fn insert(&mut self, rank: u32, remote: Remote) {
        self.remove(rank);
        self.ranks.insert(remote.connection, rank);
        self.by_rank.insert(rank, remote);
    }

    pub(crate) fn get(&self, rank: u32) -> Option<&Remote> {
        self.by_rank.get(&rank)
    }

    /// Whose connection it is.
    pub(crate) fn rank_of(&self, connection: u64) -> Option<u32> {
        self.ranks.get(&connection).copied()
    }

    pub(crate) fn remove(&mut self, rank: u32) -> Option<Remote> {
        let remote = self.by_rank.remove(&rank)?;
        self.ranks.remove(&remote.connection);
        Some(remote)
    }

    /// Forgets a connection that is gone; whose it was.
    pub(crate) fn hang_up(&mut self, connection: u64) -> Option<u32> {
        let rank = self.rank_of(connection)?;
        self.remove(rank).map(|_| rank)
    }

    pub(crate) fn ranks(&self) -> impl Iterator<Item = u32> {
        self.by_rank.keys().copied()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Remote> {
        self.by_rank.values()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Remote)> {
        self.by_rank.iter().map(|(rank, remote)| (*rank, remote))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_rank.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_one_connection_and_a_connection_one_rank() {
        let mut remotes = Remotes::default();
        remotes.insert(3, Remote::unconnected(10));
        remotes.insert(4, Remote::unconnected(11));
        // Started again elsewhere: the end of its earlier connection is nobody's loss.
        remotes.insert(3, Remote::unconnected(12));
        assert_eq!((remotes.rank_of(10), remotes.rank_of(12), remotes.len()), (None, Some(3), 2));
        assert_eq!(remotes.hang_up(10), None);
        assert_eq!(remotes.hang_up(11), Some(4));
        assert_eq!(remotes.remove(3).unwrap().connection, 12);
        assert!(remotes.is_empty() && remotes.rank_of(12).is_none());
    }
}
