//! Documents as one text: what is tokenized whole, and which tokens belong to which document.

use std::ops::Range;

use assay_checkpoint::TokenBytes;

use crate::encode::{Tokens, Wants};

/// The text of joined documents.
#[derive(Debug, Default)]
pub(crate) struct Joined {
    pub(crate) text: String,
    /// The bytes of each document in it.
    pub(crate) documents: Vec<Range<usize>>,
}

impl Joined {
    /// Adds a document, after `join` if it is not the first.
    pub(crate) fn push(&mut self, document: &str, join: &str) {
        if !self.documents.is_empty() {
            self.text.push_str(join);
        }
        let start = self.text.len();
        self.text.push_str(document);
        self.documents.push(start..self.text.len());
    }

    /// The tokens of each document. A token belongs to the document that holds its first byte, one
    /// that begins in a separator to the document before it. Offsets count from the start of the
    /// document, and end with it.
    pub(crate) fn split(&self, tokens: Vec<TokenBytes>, wants: Wants) -> Vec<Tokens> {
        let mut split: Vec<Tokens> = self
            .documents
            .iter()
            .map(|_| Tokens {
                offsets: wants.offsets.then(Vec::new),
                ..Tokens::default()
            })
            .collect();
        let mut owner = 0;
        for (id, bytes) in tokens {
            let begun = |document: &Range<usize>| document.start <= bytes.start;
            let last = self.documents.partition_point(begun) - 1;
            // The tokens of a document are one run, whatever the tokenizer says of their bytes.
            owner = last.max(owner);
            let document = &self.documents[owner];
            let tokens = &mut split[owner];
            tokens.ids.push(id);
            if let Some(offsets) = &mut tokens.offsets {
                let within = |at: usize| at.clamp(document.start, document.end) - document.start;
                offsets.push(within(bytes.start)..within(bytes.end));
            }
        }
        split
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTS: Wants = Wants {
        offsets: true,
        counted: false,
    };

    /// Of each document, its tokens with what they have of its text.
    fn split(documents: &[&str], join: &str, ends: &[usize]) -> Vec<Vec<(u32, usize, usize)>> {
        let mut joined = Joined::default();
        for document in documents {
            joined.push(document, join);
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let tokens = (0..).zip(starts.zip(ends).map(|(from, to)| from..*to));
        let split = joined.split(tokens.collect(), WANTS).into_iter();
        split
            .map(|tokens| {
                let offsets = tokens.offsets.unwrap().into_iter();
                let tokens = tokens.ids.into_iter().zip(offsets);
                tokens
                    .map(|(id, bytes)| (id, bytes.start, bytes.end))
                    .collect()
            })
            .collect()
    }

    #[test]
    fn tokens_belong_to_the_document_of_their_first_byte() {
        // "ab--cd": one token over the separator, one inside the second document.
        assert_eq!(
            split(&["ab", "cd"], "--", &[1, 5, 6]),
            [vec![(0, 0, 1), (1, 1, 2)], vec![(2, 1, 2)]]
        );
        // The separator is the first document's.
        assert_eq!(
            split(&["ab", "cd"], "--", &[2, 3, 4, 6]),
            [vec![(0, 0, 2), (1, 2, 2), (2, 2, 2)], vec![(3, 0, 2)]]
        );
    }

    #[test]
    fn empty_documents_own_the_separator_behind_them() {
        assert_eq!(
            split(&["", "", "a", ""], "-", &[1, 2, 3, 4]),
            [
                vec![(0, 0, 0)],
                vec![(1, 0, 0)],
                vec![(2, 0, 1), (3, 1, 1)],
                vec![],
            ]
        );
        // Without separators there is nothing for them to own.
        assert_eq!(
            split(&["a", "", "b", ""], "", &[1, 2]),
            [vec![(0, 0, 1)], vec![], vec![(1, 0, 1)], vec![]]
        );
    }
}
