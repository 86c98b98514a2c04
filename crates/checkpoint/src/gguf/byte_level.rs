//! Tokenizers of the kind `gpt2`: byte-level, with merges.

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

use super::keys::Keys;
use super::pre_tokenizer::{PRE_TOKENIZERS, PreTokenizer};
use super::tokenizer::{Kind, PRE, TOKENS, failed, refused};
use crate::CheckpointError;
use crate::tokenizer::SpecialTokens;

pub(super) use super::pre_tokenizer::DEFAULT;

const MERGES: &str = "tokenizer.ggml.merges";

pub(super) fn build<'a>(
    keys: &Keys<'a>,
    tokens: &[&str],
    _types: &[i128],
) -> Result<Kind<'a>, CheckpointError> {
    let pre = pre_tokenizer(keys)?;
    let merges = keys.texts(MERGES)?.ok_or_else(|| keys.missing(MERGES))?;
    let failed = |error| failed(keys, &error);
    let mut tokenizer = Tokenizer::new(byte_pairs(keys, pre, tokens, &merges)?);
    if pre.composes {
        tokenizer.with_normalizer(Some(NFC)).map_err(failed)?;
    }
    tokenizer.with_pre_tokenizer(Some(splits(pre).map_err(failed)?));
    Ok(Kind {
        tokenizer,
        adds_bos: pre.adds_bos,
        special: SpecialTokens::default(),
        name: pre.names[0],
        merges,
        rest: String::new(),
    })
}

/// The name in the file. One without it is an old one; llama.cpp then takes `default`.
pub(super) fn pre_name<'a>(keys: &Keys<'a>) -> Result<&'a str, CheckpointError> {
    let name = keys.text(PRE)?.filter(|name| !name.is_empty());
    Ok(name.unwrap_or(DEFAULT))
}

fn pre_tokenizer(keys: &Keys) -> Result<&'static PreTokenizer, CheckpointError> {
    let wanted = pre_name(keys)?;
    let found = PRE_TOKENIZERS
        .iter()
        .find(|pre| pre.names.contains(&wanted));
    found.ok_or_else(|| {
        let names: Vec<&str> = PRE_TOKENIZERS
            .iter()
            .flat_map(|pre| pre.names)
            .copied()
            .collect();
        let remedy = format!(
            "supported are {}; give the model as a Hugging Face directory",
            names.join(", ")
        );
        refused(keys, PRE, wanted, &remedy)
    })
}

fn byte_pairs(
    keys: &Keys,
    pre: &PreTokenizer,
    tokens: &[&str],
    merges: &[&str],
) -> Result<BPE, CheckpointError> {
    let wrong = |detail: String| CheckpointError::damaged(keys.file, detail);
    let mut vocabulary = Vocab::default();
    for (id, token) in (0_u32..).zip(tokens) {
        if vocabulary.insert((*token).to_owned(), id).is_some() {
            return Err(wrong(format!("`{TOKENS}` has the token {token:?} twice")));
        }
    }
    let merges = merges
        .iter()
        .map(|merge| {
            // The first character may be a space of the token itself.
            let space = merge
                .char_indices()
                .skip(1)
                .find(|(_, character)| *character == ' ');
            let (left, right) = space
                .map(|(at, _)| (&merge[..at], &merge[at + 1..]))
                .filter(|(_, right)| !right.is_empty())
                .ok_or_else(|| {
                    wrong(format!("`{MERGES}` has {merge:?}, which is not two tokens"))
                })?;
            // The tokenizers crate indexes out of bounds on a result longer than every token.
            if !vocabulary.contains_key(format!("{left}{right}").as_str()) {
                return Err(wrong(format!(
                    "`{MERGES}` has {merge:?}, which makes no token"
                )));
            }
            Ok((left.to_owned(), right.to_owned()))
        })
        .collect::<Result<Vec<_>, _>>()?;
    BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .ignore_merges(pre.ignore_merges)
        .build()
        .map_err(|error| wrong(format!("its vocabulary and merges do not fit ({error})")))
}

fn splits(pre: &PreTokenizer) -> tokenizers::Result<Sequence> {
    let mut steps = pre
        .expressions
        .iter()
        .map(|expression| {
            let pattern = SplitPattern::Regex((*expression).to_owned());
            Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map(Into::into)
        })
        .collect::<tokenizers::Result<Vec<PreTokenizerWrapper>>>()?;
    let (prefix_space, trim_offsets, expression) = (false, false, false);
    steps.push(ByteLevel::new(prefix_space, trim_offsets, expression).into());
    Ok(Sequence::new(steps))
}
