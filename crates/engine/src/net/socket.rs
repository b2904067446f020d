//! A byte stream to an origin: TCP, or TLS over it.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use flatout_wire::endpoint::{Endpoint, Scheme};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

use crate::base::error::Error;
use crate::memory::plan::{CONNECTION_BYTES, TLS_CONNECTION_BYTES};
use crate::net::proxy::{Proxy, check_the_proxy};
use crate::net::tls::Tls;
use crate::net::tls_records::RECORD_BYTES_MAX;
use crate::net::tls_stream::{AHEAD_BYTES, TlsStream};
use flatout_policy::unsent_size::UNSENT_LEAST;

/// A byte stream to an origin.
pub(crate) struct Socket {
    stream: Stream,
    floor_bytes: usize,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
    #[cfg(test)]
    Modelled(Box<crate::sim::Line>),
}

/// Connects to `address`, of the endpoint itself or of the proxy that leads to it, from the address that
/// `local` has for it; all of it `within` that time.
pub(crate) async fn connect(
    endpoint: &Endpoint,
    proxy: Option<&Proxy>,
    address: SocketAddr,
    local: io::Result<Option<IpAddr>>,
    tls: &Tls,
    within: Duration,
) -> Result<Socket, Error> {
    let unreachable = |refused: io::Error| match proxy {
        // No outage of anybody: the origin has not been asked.
        _ if matches!(refused.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
            Error::local(&format!("cannot open a connection to {endpoint}"), refused)
        }
        None => {
            Error::network(format_args!("cannot connect to {endpoint}{}", at(endpoint, address)), refused)
                .with_hint("check the endpoint, and that the origin is running and can be reached")
        }
        Some(proxy) => Error::network(format_args!("cannot connect to {proxy} ({address})"), refused)
            .with_hint(check_the_proxy()),
    };
    let is_up = Cell::new(false);
    let connected = async {
        #[cfg(test)]
        if let Some(opened) = crate::sim::connect(address).await {
            return opened.map(|line| Stream::Modelled(Box::new(line))).map_err(unreachable);
        }
        let local = local.map_err(unreachable)?;
        let mut tcp = open(address, local).await.map_err(unreachable)?;
        tcp.set_nodelay(true).map_err(unreachable)?;
        set_option(&tcp, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT_LEAST).map_err(unreachable)?;
        if endpoint.scheme == Scheme::Http {
            return Ok(Stream::Plain(tcp));
        }
        if let Some(proxy) = proxy {
            proxy.tunnel(&mut tcp, endpoint).await?;
        }
        is_up.set(true);
        Ok(Stream::Tls(Box::new(tls.handshake(tcp, endpoint).await?)))
    };
    match tokio::time::timeout(within, connected).await {
        Ok(connected) => connected.map(|stream| Socket { stream, floor_bytes: 1 }),
        Err(_elapsed) if is_up.get() => {
            let cause = format!("no TLS handshake with {endpoint}{} came about", at(endpoint, address));
            Err(Error::network(cause, io::ErrorKind::TimedOut.into())
                .with_hint("check the port, or use http://"))
        }
        Err(_elapsed) => Err(unreachable(io::ErrorKind::TimedOut.into())),
    }
}

/// A plain connection to `address`, from `local` where that is not the kernel's choice.
pub(crate) async fn open(address: SocketAddr, local: Option<IpAddr>) -> io::Result<TcpStream> {
    let Some(local) = local else { return TcpStream::connect(address).await };
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.bind(SocketAddr::new(local, 0))?;
    socket.connect(address).await
}

fn set_option(stream: &TcpStream, level: libc::c_int, name: libc::c_int, value: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(value).unwrap_or(libc::c_int::MAX);
    // SAFETY: an option of a socket that we own; the pointer is to a c_int of the length given.
    let refused = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if refused == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The address behind a name; nothing where the endpoint is that address.
fn at(endpoint: &Endpoint, address: SocketAddr) -> String {
    match endpoint.host.trim_matches(['[', ']']) == address.ip().to_string() {
        true => String::new(),
        false => format!(" ({address})"),
    }
}

impl Socket {
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// What a connection over it weighs.
    pub(crate) fn weight(&self) -> u64 {
        match &self.stream {
            Stream::Plain(_) => CONNECTION_BYTES,
            Stream::Tls(_) => TLS_CONNECTION_BYTES,
            #[cfg(test)]
            Stream::Modelled(_) => CONNECTION_BYTES,
        }
    }

    /// Asks the kernel to wake us only when `bytes` can be received (`SO_RCVLOWAT`): fewer, larger receives.
    pub(crate) fn set_floor(&mut self, bytes: usize) -> io::Result<()> {
        let (stream, bytes) = match &self.stream {
            Stream::Plain(stream) => (stream, bytes),
            // Up to a record of what is waited for may have been taken in already, in part.
            Stream::Tls(stream) => (stream.tcp(), bytes.saturating_sub(RECORD_BYTES_MAX).max(1)),
            #[cfg(test)]
            Stream::Modelled(line) => {
                line.set_floor(bytes);
                return Ok(());
            }
        };
        if self.floor_bytes == bytes {
            return Ok(());
        }
        set_option(stream, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)?;
        self.floor_bytes = bytes;
        Ok(())
    }

    /// Acknowledges at once what has come: the kernel may wait 40 ms and more for something to send along.
    /// An origin that sends by BBR and holds back incomplete segments (nginx: `tcp_nopush`) takes that wait
    /// for the pace of the link (docs/decisions/acknowledge.md).
    pub(crate) fn acknowledge(&self) {
        if let Some(stream) = self.tcp() {
            // The next receive or send finds a broken connection.
            let _ = rustix::net::sockopt::set_tcp_quickack(stream, true);
        }
    }

    /// Asks the kernel to take no more while it holds so much that has not left (`TCP_NOTSENT_LOWAT`).
    pub(crate) fn set_unsent(&self, bytes: usize) -> io::Result<()> {
        match self.tcp() {
            Some(stream) => set_option(stream, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes),
            None => Ok(()),
        }
    }

    /// The kernel's socket; `None` where a test models the connection.
    fn tcp(&self) -> Option<&TcpStream> {
        match &self.stream {
            Stream::Plain(stream) => Some(stream),
            Stream::Tls(stream) => Some(stream.tcp()),
            #[cfg(test)]
            Stream::Modelled(_) => None,
        }
    }

    /// Bytes that were written and that the other side has not acknowledged; 0 of a socket that does not
    /// tell.
    pub(crate) fn unacknowledged_bytes(&self) -> u64 {
        let stream = match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.tcp(),
            #[cfg(test)]
            Stream::Modelled(line) => return line.unacknowledged_bytes(),
        };
        let mut queued: libc::c_int = 0;
        // SAFETY: SIOCOUTQ of a TCP socket that we own writes one c_int (tcp(7)).
        let refused = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
        if refused == 0 { u64::try_from(queued).unwrap_or(0) } else { 0 }
    }

    /// Whether bytes of a file can go to it without a copy through our memory.
    pub(crate) fn takes_files(&self) -> bool {
        matches!(self.stream, Stream::Plain(_))
    }

    /// Waits until a write would be taken: a plain socket has room, and TLS has sent what it had sealed.
    pub(crate) fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => stream.poll_write_ready(cx),
            Stream::Tls(stream) => stream.poll_room(cx),
            #[cfg(test)]
            Stream::Modelled(line) => Pin::new(line).poll_flush(cx),
        }
    }

    /// How much one write takes at most: over TLS what is sealed ahead.
    pub(crate) fn takes_at_once(&self) -> usize {
        match self.stream {
            Stream::Tls(_) => AHEAD_BYTES,
            _ => usize::MAX,
        }
    }

    /// Sends bytes of a file from `at` on by `sendfile(2)`, as many as there is room for, at most `most`. 0:
    /// the file ends there.
    pub(crate) fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        file: &File,
        at: u64,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        let Stream::Plain(stream) = &self.stream else {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        };
        loop {
            ready!(stream.poll_write_ready(cx))?;
            let mut offset = at;
            let send = || Ok(rustix::fs::sendfile(stream, file, Some(&mut offset), most)?);
            match stream.try_io(Interest::WRITABLE, send) {
                Err(full) if full.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    /// The other side is known to have ended.
    pub(crate) fn is_over(&self) -> bool {
        matches!(&self.stream, Stream::Tls(stream) if stream.is_over())
    }

    /// Bytes that have come and wait in the kernel, below the floor. A socket that does not tell has none.
    pub(crate) fn queued_bytes(&self) -> u64 {
        let queued = match &self.stream {
            Stream::Plain(stream) => rustix::io::ioctl_fionread(stream),
            Stream::Tls(stream) => {
                rustix::io::ioctl_fionread(stream.tcp()).map(|queued| queued + stream.untaken_bytes() as u64)
            }
            #[cfg(test)]
            Stream::Modelled(line) => Ok(line.queued_bytes()),
        };
        queued.unwrap_or(0)
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
            #[cfg(test)]
            Stream::Modelled(line) => Pin::new(line).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
            #[cfg(test)]
            Stream::Modelled(line) => Pin::new(line).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            #[cfg(test)]
            Stream::Modelled(line) => Pin::new(line).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            #[cfg(test)]
            Stream::Modelled(line) => Pin::new(line).poll_shutdown(cx),
        }
    }
}
