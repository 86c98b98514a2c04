//! Clients that hold a connection and ask for nothing.

use std::time::Duration;

use assay_server::Connections;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::service::{CONNECTIONS, Service};

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn connect(service: &Service) -> TcpStream {
    TcpStream::connect(&service.address).await.unwrap()
}

/// Reads until `{"status":"ok", ..}` has come.
async fn read_answer(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200 "), "{answer:?}");
}

/// Reads what the server still has to say until it closes the connection.
async fn read_to_the_end(mut stream: TcpStream) -> String {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    String::from_utf8(rest).unwrap()
}

#[tokio::test]
async fn connections_without_a_request_are_closed() {
    let service = Service::with(Connections {
        idle_timeout: 1,
        ..CONNECTIONS
    })
    .await;
    let silent = connect(&service).await;
    let mut slow = connect(&service).await;
    slow.write_all(&REQUEST[..20]).await.unwrap();
    let mut kept = connect(&service).await;
    kept.write_all(REQUEST).await.unwrap();
    read_answer(&mut kept).await;

    let ends = tokio::join!(
        read_to_the_end(silent),
        read_to_the_end(slow),
        read_to_the_end(kept)
    );
    assert_eq!(ends, (String::new(), String::new(), String::new()));
    service.finish().await;
}

#[tokio::test]
async fn a_connection_too_many_waits_for_a_place() {
    let service = Service::with(Connections {
        max_connections: 2,
        ..CONNECTIONS
    })
    .await;
    let mut first = connect(&service).await;
    let mut second = connect(&service).await;
    for stream in [&mut first, &mut second] {
        stream.write_all(REQUEST).await.unwrap();
        read_answer(stream).await;
    }
    let mut third = connect(&service).await;
    third.write_all(REQUEST).await.unwrap();
    let early = timeout(Duration::from_millis(200), third.readable()).await;
    assert!(early.is_err(), "answered beside two others");

    // One that has a place is answered all the same.
    second.write_all(REQUEST).await.unwrap();
    read_answer(&mut second).await;
    drop(first);
    read_answer(&mut third).await;
    drop((second, third));
    service.finish().await;
}
