//! What an object has only in its metadata: symbolic links and extended attributes.

use std::time::Instant;

use flatout_tree::{Files, FsError, XattrNeeds};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::{Dispatcher, made_already};
use crate::reply;
use crate::request::{FuseOperation, FuseRequest};
use crate::timings::Timed;

impl<F: Files> Dispatcher<F> {
    pub(super) fn posix(&self, request: &FuseRequest<'_>) {
        let (unique, node) = (request.unique, request.node);
        let refuse = |errno: Errno| {
            self.connection.fail(unique, errno.raw_os_error());
        };
        match request.operation {
            FuseOperation::MakeLink { name, target } => {
                let (name, target) = (name.to_owned(), target.to_owned());
                let (again, caller) = (request.is_resent(), self.caller(request));
                self.wait(request, move |own, reply| {
                    let began = Instant::now();
                    let made = own.files.make_link(node, &name, &target, caller);
                    let made = made_already(again, made, || own.files.lookup(node, &name));
                    let made = own.observer.answered(Timed::Change, began, made);
                    own.found(made, |body| reply.send(body), |errno| reply.fail(errno));
                });
            }
            FuseOperation::ReadLink => {
                self.tell(request, Timed::Lookup, None, move |files| files.read_link(node));
            }
            FuseOperation::Xattr { .. } | FuseOperation::Xattrs { .. } if !self.files.has_xattrs() => {
                refuse(Errno::NOSYS);
            }
            // The kernel asks for the capabilities of a file at each write.
            FuseOperation::Xattr { name, .. } if !name.as_encoded_bytes().starts_with(b"user.") => {
                refuse(Errno::NODATA);
            }
            FuseOperation::Xattr { name, most } => {
                let name = name.to_owned();
                self.tell(request, Timed::Attributes, Some(most), move |files| files.xattr(node, &name));
            }
            FuseOperation::Xattrs { most } => {
                self.tell(request, Timed::Attributes, Some(most), move |files| {
                    let names = files.xattrs(node)?;
                    Ok(names.iter().flat_map(|name| name.bytes().chain([0])).collect())
                });
            }
            FuseOperation::SetXattr { name, value, flags } => {
                let (name, value) = (name.to_owned(), value.map(<[u8]>::to_vec));
                let needs = match XattrFlags::from_bits_retain(flags) {
                    flags if flags.contains(XattrFlags::CREATE) => XattrNeeds::Absent,
                    flags if flags.contains(XattrFlags::REPLACE) => XattrNeeds::Present,
                    _ => XattrNeeds::Nothing,
                };
                self.change(request, Timed::Change, move |files| {
                    files.set_xattr(node, &name, value.as_deref(), needs)
                });
            }
            _ => refuse(Errno::NOSYS),
        }
    }

    /// An operation whose answer is bytes: with `most` 0 how many, and else at most so many.
    fn tell(
        &self,
        request: &FuseRequest<'_>,
        operation: Timed,
        most: Option<u32>,
        work: impl FnOnce(&F) -> Result<Vec<u8>, FsError> + Send + 'static,
    ) {
        self.wait(request, move |own, reply| {
            let began = Instant::now();
            match (own.observer.answered(operation, began, work(&own.files)), most) {
                (Ok(bytes), Some(0)) => drop(reply.send(&reply::xattr_length(bytes.len()))),
                (Ok(bytes), Some(most)) if bytes.len() > most as usize => {
                    reply.fail(Errno::RANGE.raw_os_error());
                }
                (Ok(bytes), _) => drop(reply.send(&bytes)),
                (Err(errno), _) => reply.fail(errno),
            }
        });
    }
}
