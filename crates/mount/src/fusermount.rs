//! fusermount3 mounts and unmounts for users who may not: it hands the open `/dev/fuse` back over a socket.

use std::ffi::OsString;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use flatout_engine::{Error, ErrorKind};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::identity::{NO_DEVICE, local};
use crate::options::{KernelOptions, Options};

/// The newer one's name first.
const PROGRAMS: [&str; 2] = ["fusermount3", "fusermount"];

/// Mounts there, if /etc/fuse.conf allows it.
pub(crate) fn mount(point: &Path, options: &Options, kernel: &KernelOptions) -> Result<OwnedFd, Error> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|errno| local("cannot make a socket", errno))?;
    let mut command = |program: &str| {
        let mut command = Command::new(program);
        // The socket is its standard input: so no descriptor of ours is open to any other child.
        let theirs = theirs.try_clone().map_err(|error| local("cannot copy a socket", error))?;
        command.env("_FUSE_COMMFD", "0").stdin(Stdio::from(theirs));
        command.arg("-o").arg(list(options, kernel)).arg("--").arg(point);
        Ok(command)
    };
    let output = run(&mut command)?;
    drop(theirs);
    if !output.status.success() {
        return Err(refused("it may not be mounted", &output));
    }
    receive(&ours)
}

/// Unmounts; an error has fusermount3's own words.
pub(crate) fn unmount(point: &Path, lazy: bool) -> Result<(), Error> {
    let mut command = |program: &str| {
        let mut command = Command::new(program);
        command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(point).stdin(Stdio::null());
        Ok(command)
    };
    let output = run(&mut command)?;
    if output.status.success() { Ok(()) } else { Err(refused("it cannot be unmounted", &output)) }
}

fn run(command: &mut dyn FnMut(&str) -> Result<Command, Error>) -> Result<Output, Error> {
    for program in PROGRAMS {
        match command(program)?.stdout(Stdio::null()).stderr(Stdio::piped()).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            ran => return ran.map_err(|error| local(format_args!("cannot run {program}"), error)),
        }
    }
    let (cause, hint) = match rustix::process::geteuid().is_root() {
        true => (
            "root may not mount here, and there is no fusermount3",
            "a container needs `--cap-add SYS_ADMIN --device /dev/fuse`, or a connection that is handed over as /dev/fd/N",
        ),
        false => (
            "only root may mount, and there is no fusermount3",
            "install the package fuse3, or run it as root",
        ),
    };
    Err(Error::new(ErrorKind::LocalIo, cause).with_hint(hint))
}

fn refused(what: &str, output: &Output) -> Error {
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said = said.join("; ");
    Error::new(ErrorKind::LocalIo, format!("{what}: {said}")).with_hint(hint(&said))
}

/// Recognises fusermount3's words, which every version of libfuse from 2.9 on has.
fn hint(said: &str) -> &'static str {
    if said.contains("user_allow_other") {
        "add the line `user_allow_other` to /etc/fuse.conf, or run it as root"
    } else if said.contains("/dev/fuse") || said.contains("fuse device not found") {
        NO_DEVICE
    } else if said.contains("no write access to mountpoint") || said.contains("not owned by user") {
        "name a folder that is this user's own"
    } else {
        "run it as root"
    }
}

/// Options are separated by commas, so commas within one are escaped.
fn list(options: &Options, kernel: &KernelOptions) -> OsString {
    let source = options.source.replace('\\', "\\\\").replace(',', "\\,");
    let mut list = kernel.names.join(",");
    list += &format!(",fsname={source},subtype=flatout");
    for (set, name) in
        [(options.allow_other, ",allow_other"), (options.default_permissions, ",default_permissions")]
    {
        list += if set { name } else { "" };
    }
    list.into()
}

/// One byte, and the descriptor beside it.
fn receive(socket: &OwnedFd) -> Result<OwnedFd, Error> {
    let mut byte = [0; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut bytes, &mut beside, RecvFlags::CMSG_CLOEXEC)
        .map_err(|errno| local("fusermount3 hands nothing over", errno))?;
    let mut descriptors = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    descriptors.next().ok_or_else(|| {
        Error::new(ErrorKind::LocalIo, "fusermount3 says that it mounted, and hands nothing over")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_has_its_remedy() {
        for (said, part) in [
            ("fusermount3: failed to open /dev/fuse: Permission denied", "--device /dev/fuse"),
            ("fusermount3: fuse device not found, try 'modprobe fuse' first", "modprobe fuse"),
            (
                "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf",
                "/etc/fuse.conf",
            ),
            ("fusermount3: user has no write access to mountpoint /x", "user's own"),
            ("fusermount3: mountpoint /x not owned by user", "user's own"),
            ("fusermount3: mount failed: FuseOperation not permitted", "as root"),
        ] {
            assert!(hint(said).contains(part), "{said}: {}", hint(said));
        }
    }
}
