//! From a text to its token ids, with what is known of each token.

use std::ops::Range;

use assay_checkpoint::{CheckpointError, TextTokenizer, TokenBytes};

use crate::documents::Document;

/// What is wanted of a token beside its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Which bytes of the text it stands for.
    pub(crate) offsets: bool,
    /// Whether it counts.
    pub(crate) counted: bool,
}

/// The tokens of a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tokens {
    pub(crate) ids: Vec<u32>,
    /// By token, if wanted.
    pub(crate) offsets: Option<Vec<Range<usize>>>,
    /// By token, if wanted.
    pub(crate) counted: Option<Vec<bool>>,
}

/// The tokens of each document.
pub(crate) fn encode(
    tokenizer: &TextTokenizer,
    documents: &[Document],
    wants: Wants,
) -> Result<Vec<Tokens>, CheckpointError> {
    let texts: Vec<&str> = documents.iter().map(|document| &*document.text).collect();
    if !wants.offsets && !wants.counted {
        let ids = tokenizer.encode_batch(&texts)?.into_iter();
        return Ok(ids
            .map(|ids| Tokens {
                ids,
                ..Tokens::default()
            })
            .collect());
    }
    let encoded = tokenizer.encode_batch_with_offsets(&texts)?;
    Ok(documents
        .iter()
        .zip(encoded)
        .map(|(document, tokens)| of(document, tokens, wants))
        .collect())
}

fn of(document: &Document, tokens: Vec<TokenBytes>, wants: Wants) -> Tokens {
    let counted = wants.counted.then(|| {
        tokens
            .iter()
            .map(|(_, bytes)| document.counted.iter().any(|part| overlap(bytes, part)))
            .collect()
    });
    let (ids, offsets) = tokens.into_iter().unzip();
    Tokens {
        ids,
        offsets: wants.offsets.then_some(offsets),
        counted,
    }
}

/// Whether a token has a byte of a part. One that stands for no byte, such as the mark that some
/// tokenizers put before a text, has those of the place where it stands.
fn overlap(token: &Range<usize>, part: &Range<usize>) -> bool {
    !part.is_empty() && token.start < part.end && token.end.max(token.start + 1) > part.start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_counts_if_a_byte_of_it_does() {
        for (token, part, counts) in [
            (0..2, 2..5, false),
            (1..3, 2..5, true),
            (2..5, 2..5, true),
            (4..9, 2..5, true),
            (5..6, 2..5, false),
            (0..9, 2..5, true),
            (2..2, 2..5, true),
            (5..5, 2..5, false),
            (1..1, 2..5, false),
            (0..9, 5..5, false),
            (5..5, 5..5, false),
        ] {
            assert_eq!(overlap(&token, &part), counts, "{token:?} {part:?}");
        }
    }
}
