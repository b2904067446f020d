//! Messages with descriptors beside them, over a unix socket: four bytes of length, then the bytes.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// Longer ones are of a program that is not ours.
const BYTES_MAX: usize = 1 << 20;
const DESCRIPTORS_MAX: usize = 3;

/// # Errors
/// The other side is gone, or the system's.
pub fn send(socket: &UnixStream, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?.to_ne_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // Four bytes go whole or not at all.
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(socket, &[IoSlice::new(&length)], &mut beside, SendFlags::NOSIGNAL)
    })?;
    (&mut &*socket).write_all(bytes)
}

/// Waits for a message; `None` once the other side is gone.
///
/// # Errors
/// It is no message of ours, or the system's.
pub fn receive(socket: &UnixStream) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut length = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(&mut length)];
        rustix::net::recvmsg(socket, &mut slices, &mut beside, RecvFlags::CMSG_CLOEXEC)
    });
    let bytes = match received {
        Ok(received) => received.bytes,
        Err(rustix::io::Errno::CONNRESET) => 0,
        Err(errno) => return Err(errno.into()),
    };
    let descriptors: Vec<OwnedFd> = beside
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if bytes == 0 {
        return Ok(None);
    }
    let mut socket = socket;
    socket.read_exact(&mut length[bytes..])?;
    let length = u32::from_ne_bytes(length) as usize;
    if length > BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message of another program"));
    }
    let mut message = vec![0; length];
    match socket.read_exact(&mut message) {
        Ok(()) => Ok(Some((message, descriptors))),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn messages_bring_descriptors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        (&file).write_all(b"content").unwrap();
        send(&ours, b"hello", &[]).unwrap();
        send(&ours, b"two", &[file.as_fd(), ours.as_fd()]).unwrap();
        send(&ours, b"", &[file.as_fd()]).unwrap();
        drop(file);
        let (bytes, none) = receive(&theirs).unwrap().unwrap();
        assert_eq!((&bytes[..], none.len()), (&b"hello"[..], 0));
        let (bytes, mut two) = receive(&theirs).unwrap().unwrap();
        assert_eq!((&bytes[..], two.len()), (&b"two"[..], 2));
        let file = std::fs::File::from(two.remove(0));
        let mut content = [0; 7];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut content, 0).unwrap();
        assert_eq!(&content, b"content");
        assert_eq!(receive(&theirs).unwrap().unwrap().1.len(), 1);
        drop((ours, two));
        assert!(receive(&theirs).unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(b"GET / HTTP/1.1\r\n").unwrap();
        assert_eq!(receive(&theirs).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&9_u32.to_ne_bytes()).unwrap();
        ours.write_all(b"cut").unwrap();
        drop(ours);
        assert!(receive(&theirs).unwrap().is_none());
    }
}
