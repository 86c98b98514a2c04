//! Bodies and headers at fault.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use assay_api::ErrorCode::{InvalidRequest, MalformedJson, PayloadTooLarge, UnsupportedMediaType};
use assay_testkit::peak_memory;
use reqwest::Method;
use serde_json::json;

use super::{finish_without_jobs, roots, with};
use crate::client::refusal;
use crate::service::Service;

/// JSON of this depth.
fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[tokio::test]
async fn bodies_and_headers_at_fault_are_refused() {
    let service = Service::start(roots()).await;
    let send = async |kind: &'static str, key: Option<&'static [u8]>, body: Vec<u8>| {
        let request = service.client.request(Method::POST, "/jobs");
        let request = request.header("Content-Type", kind).body(body);
        let request = match key {
            Some(key) => request.header("Idempotency-Key", key),
            None => request,
        };
        let (status, code, fields, _) = refusal(request.send().await.unwrap()).await;
        (status, code, fields.join(" "))
    };
    let json = "application/json";
    let good = || with(json!({})).to_string().into_bytes();
    let large = with(json!({"name": "x".repeat(5 << 20)})).to_string();
    let field = |value: &str| format!("{{\"model\": {value}, \"datasets\": [\"a.txt\"]}}");
    let malformed = (400, MalformedJson, "");
    let key = (422, InvalidRequest, "Idempotency-Key");
    for (kind, header, body, expected) in [
        (json, None, b"{\"model\": ".to_vec(), malformed),
        (json, None, Vec::new(), malformed),
        (json, None, vec![0xff, 0xfe], malformed),
        (json, None, b"{\"model\": \"a\"} {}".to_vec(), malformed),
        (json, None, field("\"\\ud800\"").into(), malformed),
        (json, None, field("\"a\u{1}b\"").into(), malformed),
        (json, None, field("NaN").into(), malformed),
        (json, None, nested(100_000).into(), malformed),
        (json, None, field(&nested(1000)).into(), malformed),
        (json, None, large.into(), (413, PayloadTooLarge, "")),
        ("text/plain", None, good(), (415, UnsupportedMediaType, "")),
        (json, Some(&b""[..]), good(), key),
        (json, Some(&[b'k'; 256]), good(), key),
        (json, Some("schlüssel".as_bytes()), good(), key),
    ] {
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let (status, code, fields) = send(kind, header, body).await;
        assert_eq!((status, code, fields.as_str()), expected, "{shown}");
    }
    finish_without_jobs(service).await;
}

/// Sends a head and then 300 MB, as far as they are taken, and answers what comes back. The answer
/// comes before the body has gone, which a client that sends first and reads then may not see.
fn send_300_mb(address: &str, framing: &str, chunk_head: &str, chunk_tail: &str) -> String {
    const CHUNK: usize = 1 << 20;
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    let head = format!(
        "POST /jobs HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n{framing}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut writer = stream.try_clone().unwrap();
    let chunk = [chunk_head, &" ".repeat(CHUNK), chunk_tail].concat();
    let writing = thread::spawn(move || {
        (0..300)
            .take_while(|_| writer.write_all(chunk.as_bytes()).is_ok())
            .count()
    });
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while let Ok(length) = stream.read(&mut part) {
        answer.extend_from_slice(&part[..length]);
        if length == 0 || answer.ends_with(b"}") {
            break;
        }
    }
    drop(stream);
    let sent = writing.join().unwrap();
    println!("{sent} MiB were taken");
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn a_body_of_300_mb_is_not_read() {
    let service = Service::start(roots()).await;
    for (framing, head, tail) in [
        ("Content-Length: 314572800", "", ""),
        ("Transfer-Encoding: chunked", "100000\r\n", "\r\n"),
    ] {
        let address = service.address().to_owned();
        let answer =
            tokio::task::spawn_blocking(move || send_300_mb(&address, framing, head, tail));
        let answer = answer.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413 "), "{framing}: {answer}");
        assert!(answer.contains("\"E0006\""), "{framing}: {answer}");
        // It was neither kept in memory on the way.
        let memory = peak_memory(service.server.pid());
        assert!(memory < 200 << 20, "{framing}: {memory} bytes");
    }
    finish_without_jobs(service).await;
}
