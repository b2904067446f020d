//! Attributes that are in the metadata of objects.

use super::TreeOf;
use crate::attributes::Node;
use crate::fs_error::FsError;
use crate::store::ObjectStore;

impl<S: ObjectStore> TreeOf<S> {
    /// The node with what its metadata says, which may have to be asked for.
    pub(super) fn described(&self, node: Node) -> Result<Node, FsError> {
        if self.names.knows_posix(&self.names.table(), node.id) {
            return Ok(node);
        }
        self.names.learn_posix(&[node.id])?;
        self.names.node_of(&mut self.names.table(), node.id).ok_or_else(FsError::absent)
    }
}
