//! A tokenizer from the metadata of a GGUF file, with llama.cpp's meaning of the keys.

use std::collections::HashSet;

use sha2::Digest as _;
use tokenizers::{AddedToken, Tokenizer};

use super::keys::Keys;
use super::{byte_level, scored};
use crate::chat::Variables;
use crate::digest::sha256;
use crate::tokenizer::{SpecialTokens, TextTokenizer, bos_and_eos};
use crate::{ChatTemplate, CheckpointError};

const MODEL: &str = "tokenizer.ggml.model";
pub(super) const PRE: &str = "tokenizer.ggml.pre";
pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
pub(super) const TYPES: &str = "tokenizer.ggml.token_type";
const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
pub(super) const UNK: &str = "tokenizer.ggml.unknown_token_id";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";

const CHAT_TEMPLATE: &str = "tokenizer.chat_template";
/// The special tokens that a chat template may write, and the keys of their ids.
const VARIABLES: [(&str, &str); 5] = [
    ("bos_token", BOS),
    ("eos_token", EOS),
    ("unk_token", UNK),
    ("sep_token", "tokenizer.ggml.seperator_token_id"),
    ("pad_token", "tokenizer.ggml.padding_token_id"),
];

/// `tokenizer.ggml.token_type`. Tokens of the first three are found in texts as they stand,
/// before anything is split.
pub(super) const UNKNOWN: i128 = 2;
pub(super) const CONTROL: i128 = 3;
pub(super) const USER_DEFINED: i128 = 4;
pub(super) const BYTE: i128 = 6;

/// The kinds of `tokenizer.ggml.model` that can be built.
const BYTE_LEVEL: &str = "gpt2";
const SCORED: &str = "llama";

/// A tokenizer before the tokens that are found in a text as they stand are added.
pub(super) struct Kind<'a> {
    pub(super) tokenizer: Tokenizer,
    /// Whether a BOS goes in front where `add_bos_token` does not say.
    pub(super) adds_bos: bool,
    /// What BOS and EOS are where the file does not say.
    pub(super) special: SpecialTokens,
    /// What decides the ids beside the tokens and their types: a name, the merges, and the rest.
    pub(super) name: &'static str,
    pub(super) merges: Vec<&'a str>,
    pub(super) rest: String,
}

/// Builds the tokenizer.
pub(super) fn build(keys: &Keys) -> Result<TextTokenizer, CheckpointError> {
    let model = keys.text(MODEL)?.ok_or_else(|| keys.missing(MODEL))?;
    let build = match model {
        BYTE_LEVEL => byte_level::build,
        SCORED => scored::build,
        other => {
            let remedy = format!(
                "supported are {BYTE_LEVEL} (byte-level BPE) and {SCORED} (SentencePiece BPE); \
                 give the model as a Hugging Face directory"
            );
            return Err(refused(keys, MODEL, other, &remedy));
        }
    };
    let tokens = keys.texts(TOKENS)?.ok_or_else(|| keys.missing(TOKENS))?;
    let types = keys.integers(TYPES)?.unwrap_or_default();
    let mut kind = build(keys, &tokens, &types)?;
    let special = SpecialTokens {
        bos: token_id(keys, BOS, &tokens)?.or(kind.special.bos),
        eos: token_id(keys, EOS, &tokens)?.or(kind.special.eos),
    };
    let added = [
        (special.bos, keys.flag(ADD_BOS)?.unwrap_or(kind.adds_bos)),
        (special.eos, keys.flag(ADD_EOS)?.unwrap_or(false)),
    ]
    .map(|(token, added)| token.filter(|_| added));

    let strips = strips_spaces(keys)?;
    let [bos, eos] = added.map(|id| Some((tokens[id? as usize].to_owned(), id?)));
    let post_processor = kind
        .tokenizer
        .add_tokens(added_tokens(&tokens, &types, strips))
        .and_then(|_| bos_and_eos(bos, eos))
        .map_err(|error| failed(keys, &error))?;
    kind.tokenizer.with_post_processor(post_processor);

    let digest = sha256(|hasher| {
        let parts = [model, kind.name];
        for text in parts.iter().chain(&tokens).chain(&kind.merges) {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
        hasher.update(format!("{} {types:?} {special:?} {added:?}", tokens.len()));
        hasher.update(kind.rest);
        if strips {
            hasher.update(" strips");
        }
    });
    TextTokenizer::new(keys.file, kind.tokenizer, &digest, special)
}

/// What a reader of results should know about the tokenizer.
pub(super) fn warning(keys: &Keys) -> Result<Option<String>, CheckpointError> {
    let names_pre = || Ok(byte_level::pre_name(keys)? != byte_level::DEFAULT);
    if keys.text(MODEL)? != Some(BYTE_LEVEL) || names_pre()? {
        return Ok(None);
    }
    Ok(Some(format!(
        "{}: the file does not name its pre-tokenizer ({PRE}), so its tokens are probably not \
         those the model was trained with; convert the model again with a current llama.cpp, or \
         give the Hugging Face directory",
        keys.file
    )))
}

/// The chat template in the metadata.
pub(super) fn chat_template(keys: &Keys) -> Result<Option<ChatTemplate>, CheckpointError> {
    let Some(source) = keys.text(CHAT_TEMPLATE)? else {
        return Ok(None);
    };
    let tokens = keys.texts(TOKENS)?.ok_or_else(|| keys.missing(TOKENS))?;
    let mut variables = Variables::new();
    for (name, key) in VARIABLES {
        if let Some(id) = token_id(keys, key, &tokens)? {
            variables.insert(name.to_owned(), tokens[id as usize].into());
        }
    }
    ChatTemplate::new(keys.file, source, &variables).map(Some)
}

pub(super) fn refused(keys: &Keys, key: &str, value: &str, remedy: &str) -> CheckpointError {
    CheckpointError::tokenizer(
        keys.file,
        format!("`{key}` is `{value}`, which is not supported; {remedy}"),
    )
}

pub(super) fn failed(keys: &Keys, error: &tokenizers::Error) -> CheckpointError {
    CheckpointError::tokenizer(
        keys.file,
        format!("its tokenizer cannot be built ({error})"),
    )
}

pub(super) fn token_id(
    keys: &Keys,
    key: &str,
    tokens: &[&str],
) -> Result<Option<u32>, CheckpointError> {
    let Some(id) = keys.integer(key)? else {
        return Ok(None);
    };
    // Converters write -1, or 2^32 - 1, for a token that is not there.
    if id == -1 || id == i128::from(u32::MAX) {
        return Ok(None);
    }
    let known = u32::try_from(id)
        .ok()
        .filter(|id| (*id as usize) < tokens.len());
    known.map(Some).ok_or_else(|| {
        let detail = format!("is {id}, but there are {} tokens", tokens.len());
        CheckpointError::configuration(keys.file, key, detail)
    })
}

/// Whether added tokens take the spaces behind them along. The format cannot say so; llama.cpp
/// goes by the model's name, as this does.
fn strips_spaces(keys: &Keys) -> Result<bool, CheckpointError> {
    let name = keys.text("general.name")?.unwrap_or_default();
    let name = name.to_ascii_lowercase();
    Ok(name.contains("phi-3") || name.contains("phi3"))
}

/// The tokens of models that strip spaces which do not.
const KEEP_SPACES: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

/// Tokens that are found in a text as they stand, before anything is split.
fn added_tokens(tokens: &[&str], types: &[i128], strips: bool) -> Vec<AddedToken> {
    let mut seen = HashSet::new();
    tokens
        .iter()
        .zip(types)
        .filter(|(token, kind)| {
            matches!(**kind, UNKNOWN | CONTROL | USER_DEFINED) && seen.insert(**token)
        })
        .map(|(token, kind)| {
            AddedToken::from(*token, *kind != USER_DEFINED)
                .normalized(false)
                .rstrip(strips && !KEEP_SPACES.contains(token))
        })
        .collect()
}
