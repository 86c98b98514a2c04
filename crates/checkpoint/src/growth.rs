//! How much longer a tokenizer may make a text before it cuts it.

use tokenizers::Tokenizer;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;

/// The most. Steps multiply, so that a few lines can ask for more memory than there is; those of
/// models make at most some tens of it.
pub(crate) const MOST: usize = 1 << 12;

/// Bytes that one byte of a text may become, as far as the steps tell: in a row they multiply.
pub(crate) fn growth(tokenizer: &Tokenizer) -> usize {
    let normalizer = tokenizer.get_normalizer().map_or(1, of_normalizer);
    let pre_tokenizer = tokenizer.get_pre_tokenizer().map_or(1, of_pre_tokenizer);
    normalizer.saturating_mul(pre_tokenizer)
}

fn of_normalizer(step: &NormalizerWrapper) -> usize {
    match step {
        NormalizerWrapper::Sequence(steps) => product(steps.as_ref().iter().map(of_normalizer)),
        NormalizerWrapper::Replace(step) => step.content.len().max(1),
        NormalizerWrapper::ByteLevel(_) => BYTE_LEVEL,
        NormalizerWrapper::Precompiled(_) => COMPOSED,
        // These add a few bytes, or leave alone what they made.
        _ => 1,
    }
}

fn of_pre_tokenizer(step: &PreTokenizerWrapper) -> usize {
    match step {
        PreTokenizerWrapper::Sequence(steps) => {
            product(steps.as_ref().iter().map(of_pre_tokenizer))
        }
        PreTokenizerWrapper::ByteLevel(_) => BYTE_LEVEL,
        _ => 1,
    }
}

fn product(steps: impl Iterator<Item = usize>) -> usize {
    steps.fold(1, usize::saturating_mul)
}

/// Each byte becomes a character of up to two.
const BYTE_LEVEL: usize = 2;
/// The longest that the compiled rules of models (NFKC) make: 33 bytes of 3.
const COMPOSED: usize = 11;
