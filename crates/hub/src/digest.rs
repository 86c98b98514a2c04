//! Digests that the hub tells of its files.

use std::fs::File;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

const BUFFER: usize = 1 << 20;

/// The digest of a file's bytes, in lower-case hexadecimal.
///
/// It is also the name of the file's bytes in the cache, as it is in the caches that other
/// programs keep for the hub.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Digest {
    /// SHA-256, of a file in large-file storage.
    Sha256(String),
    /// Git's name of the object: SHA-1 over `blob LENGTH\0` and the bytes.
    Git(String),
}

impl Digest {
    /// The digits.
    pub fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::Git(hex) => hex,
        }
    }

    /// Whether the text is such a digest.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            Self::Sha256(hex) => is_hex(hex, 64),
            Self::Git(hex) => is_hex(hex, 40),
        }
    }

    /// The digest of the same kind of a file of `size` bytes.
    ///
    /// # Errors
    /// When it cannot be read, or `stop` is set meanwhile (`Interrupted`).
    pub(crate) fn of_file(
        &self,
        file: &File,
        size: u64,
        stop: &CancellationToken,
    ) -> io::Result<String> {
        match self {
            Self::Sha256(_) => hash(Sha256::new(), file, stop),
            Self::Git(_) => hash(Sha1::new_with_prefix(format!("blob {size}\0")), file, stop),
        }
    }
}

/// Whether a text is `length` lower-case hexadecimal digits.
pub(crate) fn is_hex(text: &str, length: usize) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == length && text.bytes().all(digit)
}

fn hash<H: sha2::Digest>(
    mut hasher: H,
    mut file: &File,
    stop: &CancellationToken,
) -> io::Result<String> {
    use std::fmt::Write;
    let mut buffer = vec![0; BUFFER];
    loop {
        // `Interrupted` of the system itself is repeated, as everywhere.
        let read = match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if read == 0 {
            break;
        }
        if stop.is_cancelled() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        hasher.update(&buffer[..read]);
    }
    Ok(hasher
        .finalize()
        .iter()
        .fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
            text
        }))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// By `sha256sum` and `git hash-object`.
    #[test]
    fn digests_are_those_of_other_programs() {
        let stop = CancellationToken::new();
        for (bytes, sha256, git) in [
            (
                &b""[..],
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
                "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
            ),
            (
                b"text",
                "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1",
                "f3a34851d44d6b97c90fbb99dd3d18c261b9a237",
            ),
        ] {
            for digest in [Digest::Sha256(sha256.into()), Digest::Git(git.into())] {
                assert!(digest.is_sound());
                let mut file = tempfile::tempfile().unwrap();
                file.write_all(bytes).unwrap();
                std::io::Seek::rewind(&mut file).unwrap();
                let found = digest.of_file(&file, bytes.len() as u64, &stop).unwrap();
                assert_eq!(found, digest.hex());
            }
        }
        for text in ["", "E69DE29BB2D1D6434B8B29AE775AD8C2E48C5391", "../../../x"] {
            assert!(!Digest::Git(text.to_owned()).is_sound());
        }
    }

    #[test]
    fn hashing_stops_when_it_should() {
        let stop = CancellationToken::new();
        stop.cancel();
        let file = File::open("/dev/zero").unwrap();
        let error = Digest::Git(String::new()).of_file(&file, 1, &stop);
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }
}
