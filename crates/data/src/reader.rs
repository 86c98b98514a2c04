//! The bytes of a file, decompressed on the way.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};

use assay_checkpoint::FileState;
use flate2::bufread::MultiGzDecoder;

use crate::container::Compression;
use crate::error::{DataError, Place};
use crate::memory;
use crate::source::SourceFile;

/// Bytes that are read, or decompressed, at once.
const BUFFER: usize = 1 << 18;

/// A file that is read from the start, decompressed.
pub(crate) struct Bytes {
    name: String,
    compression: Compression,
    /// The most bytes that are held at once: a file may decompress to far more than its size.
    limit: u64,
    inner: Box<dyn BufRead>,
}

impl Bytes {
    /// Opens a file.
    pub(crate) fn open(file: &SourceFile) -> Result<Self, DataError> {
        let compression = Compression::of(&file.name);
        let inner = decompressed(open(file)?, compression);
        let inner = inner.map_err(|error| unreadable(&file.name, error))?;
        Ok(Self {
            name: file.name.clone(),
            compression,
            limit: memory::largest_record(),
            inner,
        })
    }

    /// Appends up to the end of the line, its line feed included, or of the file. True if there
    /// was anything.
    pub(crate) fn line(&mut self, line: &mut Vec<u8>, number: u64) -> Result<bool, DataError> {
        let limit = self.limit;
        let mut rest = (&mut self.inner).take(limit);
        let read = rest.read_until(b'\n', line);
        let read = read.map_err(|error| self.fault(error))?;
        if read as u64 == limit && line.last() != Some(&b'\n') {
            return Err(too_long(Place::Line(self.name.clone(), number), limit));
        }
        Ok(read > 0)
    }

    /// Passes over a line. False at the end of the file, else whether it is more than blank.
    pub(crate) fn skip_line(&mut self) -> Result<Option<bool>, DataError> {
        let (mut any, mut filled) = (false, false);
        loop {
            let buffer = match self.inner.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.fault(error)),
            };
            if buffer.is_empty() {
                return Ok(any.then_some(filled));
            }
            any = true;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(buffer.len(), |end| end + 1);
            filled = filled || !buffer[..length].trim_ascii().is_empty();
            self.inner.consume(length);
            if end.is_some() {
                return Ok(Some(filled));
            }
        }
    }

    /// All there is, as text.
    pub(crate) fn text(mut self) -> Result<String, DataError> {
        let limit = self.limit;
        let mut bytes = Vec::new();
        let read = (&mut self.inner).take(limit).read_to_end(&mut bytes);
        let read = read.map_err(|error| self.fault(error))?;
        if read as u64 == limit {
            return Err(too_long(Place::File(self.name), limit));
        }
        String::from_utf8(bytes).map_err(|error| DataError::NotUtf8 {
            file: self.name,
            offset: error.utf8_error().valid_up_to(),
        })
    }

    fn fault(&self, error: io::Error) -> DataError {
        let kind = match self.compression {
            Compression::Gzip => "a gzip file",
            Compression::Zstd => "a zstd file",
            Compression::None => return unreadable(&self.name, error),
        };
        // What has a number comes from the operating system, the rest from the decoder.
        if error.raw_os_error().is_some() {
            return unreadable(&self.name, error);
        }
        let detail = match error.kind() {
            io::ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
            _ => error.to_string(),
        };
        DataError::Damaged {
            file: self.name.clone(),
            kind,
            detail,
        }
    }
}

/// The file itself, where that can be sought in, or its bytes decompressed into a file without a
/// name.
pub(crate) fn seekable(file: &SourceFile) -> Result<File, DataError> {
    let os = |error| unreadable(&file.name, error);
    if Compression::of(&file.name) == Compression::None {
        return open(file);
    }
    let mut bytes = Bytes::open(file)?;
    let mut spool = tempfile::tempfile().map_err(os)?;
    let space = rustix::fs::fstatvfs(&spool).map_err(|error| os(error.into()))?;
    // Half of what is free is left to others.
    let limit = space.f_bavail.saturating_mul(space.f_frsize) / 2;
    let mut written = 0;
    loop {
        let buffer = match bytes.inner.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(bytes.fault(error)),
        };
        let length = buffer.len();
        if length == 0 {
            break;
        }
        written += length as u64;
        if written > limit {
            return Err(DataError::TooLargeForDisk {
                file: file.name.clone(),
                megabytes: limit / 1_000_000,
            });
        }
        spool.write_all(buffer).map_err(os)?;
        bytes.inner.consume(length);
    }
    spool.seek(SeekFrom::Start(0)).map_err(os)?;
    Ok(spool)
}

/// Opens a file in the state that its digest is of. The path may lead elsewhere by now, and be
/// back when the digest is taken again.
fn open(file: &SourceFile) -> Result<File, DataError> {
    let os = |error| unreadable(&file.name, error);
    let opened = File::open(&file.path).map_err(os)?;
    let state = FileState::of(&opened.metadata().map_err(os)?);
    if file.state.is_some_and(|pinned| pinned != state) {
        return Err(DataError::Changed {
            file: file.name.clone(),
        });
    }
    Ok(opened)
}

fn decompressed(file: File, compression: Compression) -> io::Result<Box<dyn BufRead>> {
    let is_empty = file.metadata()?.len() == 0;
    let file = BufReader::with_capacity(BUFFER, file);
    if is_empty && compression != Compression::None {
        // The decoders take nothing for the compression of nothing.
        return Ok(Box::new(BufReader::new(CutShort)));
    }
    Ok(match compression {
        Compression::None => Box::new(file),
        Compression::Gzip => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(file))),
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::with_buffer(file)?;
            Box::new(BufReader::with_capacity(BUFFER, decoder))
        }
    })
}

struct CutShort;

impl Read for CutShort {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

pub(crate) fn unreadable(file: &str, source: io::Error) -> DataError {
    DataError::Unreadable {
        file: file.to_owned(),
        source,
    }
}

fn too_long(place: Place, limit: u64) -> DataError {
    DataError::TooLongForMemory {
        place,
        megabytes: limit / 1_000_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(content: &str, limit: u64) -> Bytes {
        Bytes {
            name: "a".to_owned(),
            compression: Compression::None,
            limit,
            inner: Box::new(io::Cursor::new(content.to_owned())),
        }
    }

    #[test]
    fn what_is_beyond_memory_is_refused_before_it_is_held() {
        let mut line = Vec::new();
        let mut long = bytes("123\n1234567890\n1", 6);
        assert!(long.line(&mut line, 1).unwrap());
        line.clear();
        let error = long.line(&mut line, 2).unwrap_err();
        assert!(
            matches!(
                &error,
                DataError::TooLongForMemory {
                    place: Place::Line(_, 2),
                    ..
                }
            ),
            "{error:?}"
        );
        assert_eq!(line.len(), 6);
        let error = bytes("123456", 6).text().unwrap_err();
        assert!(
            matches!(error, DataError::TooLongForMemory { .. }),
            "{error:?}"
        );
        assert_eq!(bytes("12345", 6).text().unwrap(), "12345");
    }

    #[test]
    fn lines_are_passed_over_without_being_held() {
        let mut lines = bytes("long enough\n \t\r\n\nlast", 1);
        for expected in [Some(true), Some(false), Some(false), Some(true), None, None] {
            assert_eq!(lines.skip_line().unwrap(), expected);
        }
    }
}
