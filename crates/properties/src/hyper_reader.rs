//! hyper's reading of an answer: its client over a pipe in memory, whose other end sends the given bytes.

use std::time::Duration;

use bytes::Bytes;
use flatout_wire::request::Method;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::{Builder, Runtime};

use crate::our_reader::{Answer, Outcome};

/// The most bytes in the pipe.
const PIPE_BYTES: usize = 64 << 10;
/// Everything is in memory, so a longer run hangs.
const PATIENCE: Duration = Duration::from_secs(60);

thread_local! {
    static RUNTIME: Runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
}

/// Reads the first final answer to a request; the end of the pieces is a closed connection.
pub(crate) fn read(pieces: &[&[u8]], request: Method) -> Outcome {
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let (ours, theirs) = duplex(PIPE_BYTES);
            let read = async { tokio::join!(say(theirs, pieces), ask(ours, request)).1 };
            match tokio::time::timeout(PATIENCE, read).await.expect("hyper came to a halt") {
                Ok((status, body)) => Outcome::Delivered(Answer { status, body }),
                Err(why) => Outcome::Refused(why),
            }
        })
    })
}

/// Waits for the request, sends the pieces one by one, and closes.
async fn say(mut pipe: DuplexStream, pieces: &[&[u8]]) {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\r\n\r\n") {
        if pipe.read_buf(&mut asked).await.unwrap_or(0) == 0 {
            return;
        }
    }
    for piece in pieces {
        // hyper has closed, because it needs no more bytes.
        if pipe.write_all(piece).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

async fn ask(pipe: DuplexStream, request: Method) -> Result<(u16, Vec<u8>), String> {
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(pipe)).await.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let asked = hyper::Request::builder().method(request.name()).uri("/").header("host", "h");
    let asked = asked.body(Empty::<Bytes>::new()).expect("a request");
    let answer = async {
        let answer = sender.send_request(asked).await.map_err(|error| why(&error))?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|error| why(&error))?;
        Ok((status, body.to_bytes().to_vec()))
    };
    let answer = answer.await;
    connection.abort();
    answer
}

/// With its cause, which has the details.
fn why(error: &hyper::Error) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}
