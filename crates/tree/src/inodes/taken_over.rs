//! The inodes that another process has left, as the kernel knows them.

use super::InodeTable;
use super::versions::{Vacancy, VersionState};
use crate::ROOT;
use crate::attributes::{AttributeSource, FileKind};
use crate::etag::Etag;
use crate::fact::Fact;
use crate::kept::{KeptNode, KeptState};

impl InodeTable {
    /// Inserts the nodes of another process under their numbers. Nothing is known of their names: the origin
    /// is asked again.
    pub(crate) fn take_over(&mut self, state: &KeptState, now_ms: u64) {
        // The rows are there.
        let kept = std::mem::take(&mut self.kept);
        self.generations = state.nodes.values().map(|node| node.generation).max().unwrap_or(0);
        for (&ino, node) in &state.nodes {
            self.insert_with_folders(ino, node, state);
        }
        for (&ino, &count) in &state.lookups {
            if let Some(inode) = self.get_mut(ino) {
                inode.looked_up = count;
                self.looked_up += u64::from(count > 0);
            }
        }
        let folders: Vec<u64> = std::iter::once(ROOT)
            .chain(state.nodes.iter().filter(|(_, node)| node.kind == FileKind::Folder).map(|(&ino, _)| ino))
            .collect();
        for ino in folders {
            if let Some(folder) = self.folder_mut(ino) {
                folder.outdated_ms = now_ms;
            }
        }
        for &ino in &state.made_here {
            self.set_made_here(ino, true, now_ms);
        }
        self.kept = kept;
        let is_lost = |ino: &&u64| self.get(**ino).is_none();
        state.nodes.keys().filter(is_lost).for_each(|&ino| self.kept.node_gone(ino));
    }

    /// Those that no handle and no lookup needs go.
    pub(crate) fn rest_all(&mut self, state: &KeptState, now_ms: u64) {
        state.nodes.keys().for_each(|&ino| self.rest(ino, now_ms));
    }

    fn insert_with_folders(&mut self, ino: u64, node: &KeptNode, state: &KeptState) {
        // Those above it come first. A node whose folder is missing is dropped, and so is a circle.
        let mut chain = vec![(ino, node)];
        while let Some(&(ino, node)) = chain.last() {
            if self.get(ino).is_some() {
                chain.pop();
                break;
            }
            let parent = node.parent;
            if self.get(parent).is_some() {
                break;
            }
            let Some(above) = state.nodes.get(&parent).filter(|_| chain.len() <= state.nodes.len()) else {
                return;
            };
            chain.push((parent, above));
        }
        for (ino, node) in chain.into_iter().rev() {
            self.insert_taken_over(ino, node, state);
        }
    }

    fn insert_taken_over(&mut self, ino: u64, node: &KeptNode, state: &KeptState) {
        let KeptNode { number, parent, generation, kind, ref name } = *node;
        let version = state.versions.get(&ino);
        let fact = match (version, kind) {
            (Some((version, _)), FileKind::File) => version.fact(),
            (_, FileKind::Folder) => Fact::folder(0),
            (None, FileKind::File) => Fact {
                size: 0,
                asked_ms: 0,
                etag: Etag::None,
                modified_s: 0,
                source: AttributeSource::Listing,
            },
        };
        self.pin(parent);
        self.insert(Vacancy { ino, number }, parent, name, kind, fact);
        let Some(inode) = self.get_mut(ino) else { return };
        inode.generation = generation;
        inode.state = match version {
            None => VersionState::Unopened,
            Some((_, false)) => VersionState::Opened,
            Some((_, true)) => VersionState::Replaced,
        };
        // What the kernel has of a file that is not open is not known.
        inode.has_changed = kind == FileKind::File && version.is_none();
    }
}
