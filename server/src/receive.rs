//! A body that is too large for memory, read by blocking code while it arrives.

use std::future::poll_fn;
use std::io::{self, Read};
use std::pin::Pin;
use std::time::Duration;

use assay_api::ErrorCode;
use axum::body::{Body, Bytes, HttpBody};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::error::ApiError;

/// Longest time in which nothing of a body arrives.
pub(crate) const SILENCE: Duration = Duration::from_secs(30);

/// Chunks that wait between the connection and the disk.
const WAITING: usize = 8;

/// What is read of a refused body and dropped: a connection that is closed with unread data is
/// reset, and its client may lose the answer. A client that sends for longer may.
const DRAINED: u64 = 8 << 20;
const DRAINING: Duration = Duration::from_secs(5);

enum Part {
    Chunk(Bytes),
    End,
}

/// The blocking end: reads what arrives, and fails where that stops without an end.
pub(crate) struct Received {
    parts: mpsc::Receiver<Part>,
    chunk: Bytes,
    ended: bool,
}

impl Read for Received {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() && !self.ended {
            match self.parts.blocking_recv() {
                Some(Part::Chunk(chunk)) => self.chunk = chunk,
                Some(Part::End) => self.ended = true,
                // The request is gone, or was refused: what is here is not the whole.
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = buffer.len().min(self.chunk.len());
        buffer[..count].copy_from_slice(&self.chunk.split_to(count));
        Ok(count)
    }
}

/// A body that is to be received.
pub(crate) struct Incoming {
    pub(crate) body: Body,
    /// Bytes that are taken.
    pub(crate) limit: u64,
    /// Longest time in which nothing arrives.
    pub(crate) silence: Duration,
    /// Whether the client waits for leave to send, and so sends nothing that is not asked for.
    pub(crate) awaits_leave: bool,
}

impl Incoming {
    /// Length that the client has declared.
    pub(crate) fn declared(&self) -> Option<u64> {
        self.body.size_hint().exact()
    }

    /// Runs `work` with the body and answers what it made of it. Where the body breaks off, is
    /// refused, or the caller of this goes away, `work` reads an error and never an end.
    ///
    /// # Errors
    /// The body is longer than the limit, breaks off, or nothing of it arrives for too long.
    pub(crate) async fn receive<T: Send + 'static>(
        mut self,
        work: impl FnOnce(Received) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        if self.declared().is_some_and(|length| length > self.limit) {
            return Err(self.refuse().await);
        }
        let (sender, parts) = mpsc::channel(WAITING);
        let received = Received {
            parts,
            chunk: Bytes::new(),
            ended: false,
        };
        let work = tokio::task::spawn_blocking(move || work(received));
        let forwarded = self.forward(&sender).await;
        // So that the other end stops, whether or not it has read an end.
        drop(sender);
        let made = work.await?;
        match forwarded {
            Ok(()) => Ok(made),
            Err(error) => Err(error),
        }
    }

    async fn forward(&mut self, sender: &mpsc::Sender<Part>) -> Result<(), ApiError> {
        let declared = self.declared();
        let mut length = 0_u64;
        while let Some(chunk) = self.next().await? {
            length += chunk.len() as u64;
            if length > self.limit {
                return Err(self.refuse().await);
            }
            if sender.send(Part::Chunk(chunk)).await.is_err() {
                // The blocking end has failed, and says why.
                self.drain().await;
                return Ok(());
            }
        }
        if declared.is_some_and(|declared| declared != length) {
            return Err(broken_off());
        }
        // Fails only if the blocking end has.
        let _ = sender.send(Part::End).await;
        Ok(())
    }

    async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let frame = timeout(self.silence, frame).await.map_err(|_| {
                ApiError::new(
                    ErrorCode::Timeout,
                    format!(
                        "nothing of the body arrived for {} seconds, so nothing is kept of it; \
                         send it again",
                        self.silence.as_secs()
                    ),
                )
            })?;
            match frame.transpose().map_err(|_| broken_off())? {
                None => return Ok(None),
                // Other frames are trailers.
                Some(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    async fn refuse(&mut self) -> ApiError {
        self.drain().await;
        let limit = self.limit;
        ApiError::new(
            ErrorCode::PayloadTooLarge,
            format!(
                "the upload is larger than {limit} bytes, which this server takes; compress it \
                 (`.gz` or `.zst` behind the name), put it below the data root, or start the \
                 server with a higher --upload-limit"
            ),
        )
    }

    pub(crate) async fn drain(&mut self) {
        if self.awaits_leave {
            return;
        }
        let rest = async {
            let mut length = 0;
            while let Ok(Some(chunk)) = self.next().await {
                length += chunk.len() as u64;
                if length > DRAINED {
                    return;
                }
            }
        };
        // Whether it ends or not, the answer is the same.
        let _ = timeout(DRAINING, rest).await;
    }
}

fn broken_off() -> ApiError {
    ApiError::of_field(
        ErrorCode::InvalidRequest,
        "body",
        "broke off before it was complete; nothing of it is kept, send it again",
    )
}

#[cfg(test)]
mod tests;
