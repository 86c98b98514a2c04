use super::*;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf, duplex};
use tokio::sync::oneshot;
use tokio_util::io::ReaderStream;

const PATIENCE: Duration = Duration::from_mins(1);

fn incoming(body: impl Into<Body>, limit: u64) -> Incoming {
    Incoming {
        body: body.into(),
        limit,
        silence: PATIENCE,
        awaits_leave: false,
    }
}

/// A body of unknown length.
fn unsized_body(reader: impl AsyncRead + Send + 'static) -> Body {
    Body::from_stream(ReaderStream::new(reader))
}

fn read_all(mut received: Received) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    received.read_to_end(&mut bytes)?;
    Ok(bytes)
}

async fn code_of(incoming: Incoming) -> ErrorCode {
    match incoming.receive(read_all).await {
        Err(ApiError::Problem(problem)) => problem.code,
        Err(other) => panic!("{other}"),
        Ok(read) => panic!("{read:?}"),
    }
}

/// Reads as `abc`, then fails.
struct Broken(bool);

impl AsyncRead for Broken {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        buffer.put_slice(b"abc");
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_body_is_read_as_it_was_sent() {
    for length in [0, 1, 100_000] {
        let sent: Vec<u8> = (0..length).map(|i: u32| (i % 251) as u8).collect();
        let limit = u64::from(length);
        let read = incoming(sent.clone(), limit).receive(read_all).await;
        assert_eq!(read.unwrap().unwrap(), sent);
        let body = unsized_body(io::Cursor::new(sent.clone()));
        let read = incoming(body, limit).receive(read_all).await;
        assert_eq!(read.unwrap().unwrap(), sent);
    }
}

#[tokio::test]
async fn the_limit_holds_for_declared_and_for_counted_bytes() {
    let (large, counted) = (vec![0_u8; 1001], ErrorCode::PayloadTooLarge);
    assert_eq!(code_of(incoming(large.clone(), 1000)).await, counted);
    let body = unsized_body(io::Cursor::new(large));
    assert_eq!(code_of(incoming(body, 1000)).await, counted);
}

#[tokio::test]
async fn what_breaks_off_has_no_end() {
    let (sender, seen) = oneshot::channel();
    let outcome = incoming(unsized_body(Broken(false)), 1000)
        .receive(move |received| {
            sender.send(read_all(received)).expect("the test waits");
        })
        .await;
    let Err(ApiError::Problem(problem)) = outcome else {
        panic!("taken")
    };
    assert_eq!(problem.code, ErrorCode::InvalidRequest);
    assert_eq!(problem.errors[0].field, "body");
    let error = seen.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_request_that_is_gone_has_no_end() {
    let (mut client, server) = duplex(64);
    client.write_all(b"abc").await.unwrap();
    let (sender, seen) = oneshot::channel();
    let receiving = incoming(unsized_body(server), 1000).receive(move |received| {
        sender.send(read_all(received)).expect("the test waits");
    });
    assert!(timeout(Duration::from_millis(50), receiving).await.is_err());
    let error = seen.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn a_silent_client_is_given_up_on() {
    let (_client, server) = duplex(64);
    let mut silent = incoming(unsized_body(server), 1000);
    silent.silence = Duration::from_millis(10);
    assert_eq!(code_of(silent).await, ErrorCode::Timeout);
}

#[tokio::test]
async fn a_disk_that_refuses_is_heard_of() {
    let body = unsized_body(io::Cursor::new(vec![0; 1 << 20]));
    let outcome = incoming(body, 1 << 20).receive(|_| "no room").await;
    assert_eq!(outcome.ok(), Some("no room"));
}
