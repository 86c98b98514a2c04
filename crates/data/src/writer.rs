//! Writing a token file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::aside;
use crate::encode::{Tokens, Wants};
use crate::store::{GROUPS, ID, JOINED, MAGIC, MASK, OFFSETS, ranges};

/// What a token file has beside ids and records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sections {
    pub(crate) wants: Wants,
    pub(crate) groups: bool,
    pub(crate) joined: bool,
}

/// What is known of a document beside its tokens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) bytes: u64,
    pub(crate) words: u64,
    /// Its group, numbered as they are met.
    pub(crate) group: u32,
}

/// Writes a token file aside and puts it in place when it is complete.
pub(crate) struct StoreWriter {
    file: BufWriter<NamedTempFile>,
    checksum: Sha256,
    tokens_digest: Sha256,
    sections: Sections,
    records: Vec<[u64; 3]>,
    groups: Vec<u32>,
    /// The offsets so far, which stand behind all ids.
    offsets: Option<BufWriter<File>>,
    /// A bit for each token.
    mask: Vec<u64>,
    counted: u64,
}

impl StoreWriter {
    /// Starts a file in `dir`, which is created if need be.
    pub(crate) fn new(dir: &Path, sections: Sections) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        aside::remove_abandoned(dir)?;
        let spool = if sections.wants.offsets {
            Some(BufWriter::new(tempfile::tempfile_in(dir)?))
        } else {
            None
        };
        let mut tokens_digest = Sha256::new();
        if sections.wants.counted {
            tokens_digest.update(b"mask");
        }
        Ok(Self {
            file: BufWriter::new(aside::create(dir)?),
            checksum: Sha256::new(),
            tokens_digest,
            sections,
            records: Vec::new(),
            groups: Vec::new(),
            offsets: spool,
            mask: Vec::new(),
            counted: 0,
        })
    }

    /// Adds a document. Its tokens have what the sections say.
    pub(crate) fn push(&mut self, tokens: &Tokens, facts: Facts) -> io::Result<()> {
        let first = self.tokens();
        let count = tokens.ids.len() as u64;
        let encoded: Vec<u8> = tokens.ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.tokens_digest.update(count.to_le_bytes());
        self.tokens_digest.update(&encoded);
        match &tokens.counted {
            Some(counted) => self.push_mask(first, counted),
            None => self.counted += count,
        }
        if let (Some(spool), Some(offsets)) = (&mut self.offsets, &tokens.offsets) {
            for offset in offsets {
                spool.write_all(&small(offset.start)?.to_le_bytes())?;
                spool.write_all(&small(offset.end)?.to_le_bytes())?;
            }
        }
        self.groups
            .extend(self.sections.groups.then_some(facts.group));
        self.records.push([first + count, facts.bytes, facts.words]);
        self.put(&encoded)
    }

    fn push_mask(&mut self, first: u64, counted: &[bool]) {
        for (at, _) in (first..).zip(counted).filter(|(_, counted)| **counted) {
            let word = usize::try_from(at / 64).expect("what is in memory is addressable");
            if self.mask.len() <= word {
                self.mask.resize(word + 1, 0);
            }
            self.mask[word] |= 1 << (at % 64);
            self.counted += 1;
        }
        let parts = ranges(counted.iter().copied());
        self.tokens_digest
            .update((parts.len() as u64).to_le_bytes());
        for part in parts {
            self.tokens_digest.update(part.start.to_le_bytes());
            self.tokens_digest.update(part.end.to_le_bytes());
        }
    }

    /// Documents so far.
    pub(crate) fn documents(&self) -> u64 {
        self.records.len() as u64
    }

    /// Tokens so far.
    pub(crate) fn tokens(&self) -> u64 {
        self.records.last().map_or(0, |record| record[0])
    }

    /// Tokens so far that count.
    pub(crate) fn counted(&self) -> u64 {
        self.counted
    }

    /// Completes the file and renames it to `path`; `groups` has the names in their order, each
    /// with the number it had so far. Whoever else builds the same file renames an equal one, so
    /// the order does not matter.
    pub(crate) fn finish(mut self, path: &Path, groups: &[(String, u32)]) -> io::Result<()> {
        let (documents, tokens) = (self.documents(), self.tokens());
        if tokens % 2 == 1 {
            self.put(&[0; ID])?;
        }
        self.put_offsets()?;
        let mut flags = 0;
        if self.sections.wants.counted {
            flags |= MASK;
            let mut mask = std::mem::take(&mut self.mask);
            mask.resize(
                usize::try_from(tokens.div_ceil(64)).unwrap_or(usize::MAX),
                0,
            );
            self.put_numbers(mask)?;
        }
        let records = std::mem::take(&mut self.records);
        self.put_numbers(records.into_iter().flatten())?;
        let mut names = Vec::new();
        if self.sections.groups {
            flags |= GROUPS;
            names = self.put_groups(groups)?;
        }
        if self.sections.wants.offsets {
            flags |= OFFSETS;
        }
        if self.sections.joined {
            flags |= JOINED;
        }
        let numbers = [documents, tokens, flags, names.len() as u64];
        self.put(&names)?;
        self.put(MAGIC)?;
        self.put_numbers(numbers)?;
        let tokens_digest = self.tokens_digest.clone().finalize();
        self.put(&tokens_digest)?;
        let checksum = self.checksum.clone().finalize();
        self.put(&checksum)?;
        self.file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?
            .persist(path)?;
        Ok(())
    }

    fn put_offsets(&mut self) -> io::Result<()> {
        let Some(spool) = self.offsets.take() else {
            return Ok(());
        };
        let mut spool = spool.into_inner().map_err(io::IntoInnerError::into_error)?;
        spool.rewind()?;
        let mut buffer = vec![0; 1 << 20];
        loop {
            match spool.read(&mut buffer)? {
                0 => return Ok(()),
                read => self.put(&buffer[..read])?,
            }
        }
    }

    /// Writes the groups of the documents; gives back the names, padded to a multiple of 8.
    fn put_groups(&mut self, groups: &[(String, u32)]) -> io::Result<Vec<u8>> {
        let mut places = vec![0_u32; groups.len()];
        for (place, (_, number)) in (0..).zip(groups) {
            places[*number as usize] = place;
        }
        let mut numbers: Vec<u8> = std::mem::take(&mut self.groups)
            .into_iter()
            .flat_map(|number| places[number as usize].to_le_bytes())
            .collect();
        numbers.resize(numbers.len().next_multiple_of(8), 0);
        self.put(&numbers)?;
        let names: Vec<&str> = groups.iter().map(|(name, _)| &**name).collect();
        let mut names = serde_json::to_vec(&names)?;
        names.resize(names.len().next_multiple_of(8), b' ');
        Ok(names)
    }

    fn put_numbers(&mut self, numbers: impl IntoIterator<Item = u64>) -> io::Result<()> {
        let bytes: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        self.put(&bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum.update(bytes);
        self.file.write_all(bytes)
    }
}

fn small(offset: usize) -> io::Result<u32> {
    // A text of this size takes more memory to tokenize than any host has.
    u32::try_from(offset).map_err(io::Error::other)
}
