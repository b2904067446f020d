//! What a mount serves: files and folders by inode, from memory or after a wait for an origin.

use std::ffi::OsStr;
use std::time::Duration;

use crate::attributes::{AttributeChanges, Caller, FolderEntry, Node, OpenMode, OpenedFile, Statfs};
use crate::fs_error::FsError;

/// Bytes that were read, where they landed.
pub type Slices<'a, 'b> = &'a mut dyn Iterator<Item = &'b [u8]>;

/// What [`Files::write`] asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMoment {
    /// It is about to wait: may it?
    Wait,
    /// It is about to take the bytes: nothing can be given up any more if that is answered with yes.
    Take,
}

/// What setxattr(2) makes a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrNeeds {
    #[default]
    Nothing,
    /// `XATTR_CREATE`
    Absent,
    /// `XATTR_REPLACE`
    Present,
}

/// Cancels a read. Where the read was answered meanwhile, nothing happens.
pub type Cancel = Box<dyn FnOnce() + Send>;

/// Files and folders. A call named `…_known` answers from memory, or with `None` where the origin has to be
/// asked; it does not wait. Inodes and handles are FUSE's: a lookup is undone by `forget`, an open by
/// `release`. What writes has defaults, those of files that can only be read.
pub trait Files: Send + Sync + 'static {
    /// Looks `name` up in a folder, and counts one lookup of its inode.
    ///
    /// # Errors
    /// `ENOENT`, which may be believed for [`Files::negative_lifetime`]; `ENOTDIR`, `ENAMETOOLONG`; `ESTALE`
    /// for an inode that nobody has looked up; the origin's refusal.
    fn lookup(&self, parent: u64, name: &OsStr) -> Result<Node, FsError>;

    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Node, FsError>>;

    /// How long the kernel may believe an `ENOENT`.
    fn negative_lifetime(&self) -> Duration;

    /// The attributes of an inode.
    ///
    /// # Errors
    /// `ENOENT` when its name is gone or of another kind; `ESTALE` when the version that was opened by this
    /// inode was replaced; the origin's refusal.
    fn attributes(&self, node: u64) -> Result<Node, FsError>;

    fn attributes_known(&self, node: u64) -> Option<Result<Node, FsError>>;

    /// Takes back `times` lookups. Does not wait.
    fn forget(&self, node: u64, times: u64);

    /// Opens a folder to be read. Nothing is asked.
    ///
    /// # Errors
    /// `ENOTDIR`, `ESTALE`.
    fn open_folder(&self, node: u64) -> Result<u64, FsError>;

    /// Hands the entries from `offset` on to `each`, `.` and `..` first, until it returns `false`: that entry
    /// was not taken. With `plus` every entry that was taken, except `.` and `..`, counts a lookup.
    /// Pages are fetched as they are read; an offset stays valid until the folder is read from 0
    /// again.
    ///
    /// # Errors
    /// `EBADF`; the reason why a page could not be fetched. Entries that were taken before stay taken.
    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), FsError>;

    /// Does not wait.
    fn release_folder(&self, handle: u64);

    /// Opens a file. To be read, it is opened at the version that is known; with close-to-open, at the
    /// version that the origin has now. A file that is being written is opened as it is.
    ///
    /// # Errors
    /// `EISDIR`, `ENOENT`, the origin's refusal; `ESTALE` where another version was opened by this inode
    /// before. On `ESTALE` the kernel looks the name up again, once, and opens the inode of the new version:
    /// a node has one content, as it has one page cache.
    fn open(&self, node: u64, mode: OpenMode, caller: Caller) -> Result<OpenedFile, FsError>;

    /// As [`Files::open`], of a file that is to be read.
    fn open_known(&self, node: u64, mode: OpenMode) -> Option<Result<OpenedFile, FsError>>;

    /// Makes a file, opens it, and counts one lookup of its inode. Others see it once it is published, by
    /// `flush` or `sync`. With `exclusive` it must not be there, neither now nor when it is published.
    ///
    /// # Errors
    /// `EEXIST`; `EILSEQ` for a name that no key can have; as [`Files::lookup`].
    fn create(
        &self,
        parent: u64,
        name: &OsStr,
        exclusive: bool,
        mode: OpenMode,
        caller: Caller,
    ) -> Result<(Node, OpenedFile), FsError> {
        let _ = (parent, name, exclusive, mode, caller);
        Err(FsError::of(libc::EROFS))
    }

    /// As [`Files::write`], if that waits for nothing, else `None`.
    fn write_known(
        &self,
        handle: u64,
        at: u64,
        bytes: &[u8],
        caller: Caller,
    ) -> Option<Result<bool, FsError>> {
        let _ = (handle, at, bytes, caller);
        Some(Err(FsError::of(libc::EROFS)))
    }

    /// Writes all of `bytes` at the end of a file. It waits while they come faster than they are sent. It
    /// writes nothing once `goes_on` says no. Whether the mode is another by that: whoever is not root takes
    /// privileges away.
    ///
    /// # Errors
    /// `EBADF`; `EOPNOTSUPP` elsewhere than at the end; what the upload failed with; `EINTR`.
    fn write(
        &self,
        handle: u64,
        at: u64,
        bytes: &[u8],
        caller: Caller,
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, FsError> {
        let _ = (handle, at, bytes, caller, goes_on);
        Err(FsError::of(libc::EROFS))
    }

    /// A descriptor of the file is closed: what its process has written is published. A process that did not
    /// write publishes nothing, and neither does one that was killed while it wrote a new file.
    ///
    /// # Errors
    /// Why it could not be published.
    fn flush(&self, handle: u64, caller: Caller) -> Result<(), FsError> {
        let _ = (handle, caller);
        Ok(())
    }

    /// As [`Files::flush`], where there is nothing to publish. It must be called before the handle's release
    /// is: a killed process does not wait for the answer.
    fn flush_known(&self, handle: u64, caller: Caller) -> Option<Result<(), FsError>> {
        let _ = (handle, caller);
        None
    }

    /// Publishes what was written.
    ///
    /// # Errors
    /// Why it could not be published.
    fn sync(&self, handle: u64) -> Result<(), FsError> {
        let _ = handle;
        Ok(())
    }

    /// Whether a read of this handle has to be asked of the file's writer, by [`Files::read_written`].
    fn is_written(&self, handle: u64, at: u64, bytes: usize) -> bool {
        let _ = (handle, at, bytes);
        false
    }

    /// Reads from a file that is being written.
    ///
    /// # Errors
    /// `EBUSY` for what is neither in memory nor published, unless the handle writes itself: then it is
    /// published first.
    fn read_written(&self, handle: u64, at: u64, bytes: usize) -> Result<Vec<u8>, FsError> {
        let _ = (handle, at, bytes);
        Err(FsError::of(libc::EBADF))
    }

    /// Changes attributes. A file can be cut to nothing; modes, owners and times stay as they are, and what
    /// asks for others is refused unless the settings say to ignore it.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, the origin's refusal.
    fn change_attributes(&self, node: u64, changes: AttributeChanges) -> Result<Node, FsError> {
        let _ = (node, changes);
        Err(FsError::of(libc::EROFS))
    }

    /// Deletes a file.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, the origin's refusal.
    fn remove_file(&self, parent: u64, name: &OsStr) -> Result<(), FsError> {
        let _ = (parent, name);
        Err(FsError::of(libc::EROFS))
    }

    /// Makes a folder, and counts one lookup of its inode.
    ///
    /// # Errors
    /// `EEXIST`, the origin's refusal.
    fn make_folder(
        &self,
        parent: u64,
        name: &OsStr,
        permissions: u32,
        caller: Caller,
    ) -> Result<Node, FsError> {
        let _ = (parent, name, permissions, caller);
        Err(FsError::of(libc::EROFS))
    }

    /// Makes a symbolic link, and counts one lookup of its inode.
    ///
    /// # Errors
    /// `EEXIST`; `EOPNOTSUPP` where attributes are not kept; the origin's refusal.
    fn make_link(&self, parent: u64, name: &OsStr, target: &OsStr, caller: Caller) -> Result<Node, FsError> {
        let _ = (parent, name, target, caller);
        Err(FsError::of(libc::EOPNOTSUPP))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` for another file; the origin's refusal.
    fn read_link(&self, node: u64) -> Result<Vec<u8>, FsError> {
        let _ = node;
        Err(FsError::of(libc::EINVAL))
    }

    /// Whether extended attributes are kept. Where they are not, the kernel asks once.
    fn has_xattrs(&self) -> bool {
        false
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA`; the origin's refusal.
    fn xattr(&self, node: u64, name: &OsStr) -> Result<Vec<u8>, FsError> {
        let _ = (node, name);
        Err(FsError::of(libc::ENODATA))
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// The origin's refusal.
    fn xattrs(&self, node: u64) -> Result<Vec<String>, FsError> {
        let _ = node;
        Ok(Vec::new())
    }

    /// Sets an extended attribute, or removes it (`None`).
    ///
    /// # Errors
    /// `EOPNOTSUPP` for a name that does not begin with `user.`; `ENODATA`, `EEXIST` as `needs` has it; the
    /// origin's refusal.
    fn set_xattr(
        &self,
        node: u64,
        name: &OsStr,
        value: Option<&[u8]>,
        needs: XattrNeeds,
    ) -> Result<(), FsError> {
        let _ = (node, name, value, needs);
        Err(FsError::of(libc::EOPNOTSUPP))
    }

    /// Deletes an empty folder.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, the origin's refusal.
    fn remove_folder(&self, parent: u64, name: &OsStr) -> Result<(), FsError> {
        let _ = (parent, name);
        Err(FsError::of(libc::EROFS))
    }

    /// Gives a file or folder another name. With `exclusive` nothing may have it.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `EISDIR`, `ENOTDIR`, `ENOTEMPTY`; `EINVAL` into itself; `EXDEV` for a folder of
    /// more objects than may be renamed, which mv(1) then copies; the origin's refusal.
    fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), exclusive: bool) -> Result<(), FsError> {
        let _ = (from, to, exclusive);
        Err(FsError::of(libc::EROFS))
    }

    /// Reads from the version that was opened. `done` is called once: on this thread within this call where
    /// the bytes are in memory or the read cannot be begun, else later on another thread, unless the read is
    /// cancelled. Returns how to cancel it, where it was not answered within the call. Does not wait.
    ///
    /// `done` gets `EBADF`; `ESTALE` once another version is known; the origin's refusal.
    fn read(
        &self,
        handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel>;

    /// Publishes what was written and is not published yet, and waits for that.
    ///
    /// # Errors
    /// Why it could not be published: nobody but the log hears of it. What the kernel knows of the file is
    /// wrong then.
    fn release(&self, handle: u64) -> Result<(), FsError>;

    /// As [`Files::release`], of an open whose answer was not taken: nothing is published by it.
    ///
    /// # Errors
    /// As [`Files::release`].
    fn release_unopened(&self, handle: u64) -> Result<(), FsError> {
        self.release(handle)
    }

    /// Whether [`Files::release`] may wait.
    fn release_waits(&self, handle: u64) -> bool {
        let _ = handle;
        false
    }

    /// The kernel is about to hear of a handle that this request opened. From now on another process can go
    /// on with it.
    fn keep_file(&self, handle: u64, request: u64) {
        let _ = (handle, request);
    }

    /// As [`Files::keep_file`], of a folder.
    fn keep_folder(&self, handle: u64, request: u64) {
        let _ = (handle, request);
    }

    /// The kernel sends a request again that another process has read: a handle that it opened was never
    /// heard of.
    fn take_back(&self, request: u64) {
        let _ = request;
    }

    /// Whether a rename that is asked for again was done by another process: the old name is gone, and the
    /// new one is there. What is known of the names is then as after the rename.
    ///
    /// # Errors
    /// The origin's refusal.
    fn was_renamed(&self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<bool, FsError> {
        let _ = (from, to);
        Ok(false)
    }

    /// The size of the whole. Does not wait.
    fn statfs(&self) -> Statfs;
}
