//! A tokenizer from the metadata of a GGUF file, with llama.cpp's meaning of the keys.

use std::collections::HashSet;

use sha2::Digest as _;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

use super::keys::Keys;
use crate::chat::Variables;
use crate::digest::sha256;
use crate::tokenizer::{SpecialTokens, TextTokenizer, bos_and_eos};
use crate::{ChatTemplate, CheckpointError};

const MODEL: &str = "tokenizer.ggml.model";
const PRE: &str = "tokenizer.ggml.pre";
const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";
const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";

const CHAT_TEMPLATE: &str = "tokenizer.chat_template";
/// The special tokens that a chat template may write, and the keys of their ids.
const VARIABLES: [(&str, &str); 5] = [
    ("bos_token", BOS),
    ("eos_token", EOS),
    ("unk_token", "tokenizer.ggml.unknown_token_id"),
    ("sep_token", "tokenizer.ggml.seperator_token_id"),
    ("pad_token", "tokenizer.ggml.padding_token_id"),
];

/// `tokenizer.ggml.token_type`: found in texts as they stand, before anything is split.
const UNKNOWN: i128 = 2;
const CONTROL: i128 = 3;
const USER_DEFINED: i128 = 4;

/// How a text is cut before byte-pair encoding. Each expression cuts the pieces the one before
/// it left; what it does not match stays as a piece.
struct PreTokenizer {
    names: &'static [&'static str],
    expressions: &'static [&'static str],
    /// A piece that is a token is taken as it is, whatever the merges say.
    ignore_merges: bool,
    /// Whether a BOS goes in front where `add_bos_token` does not say.
    adds_bos: bool,
    /// Composes characters first. llama.cpp does not; the models' own tokenizers do, and they
    /// were trained with it.
    composes: bool,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The expressions of llama.cpp's `llm_tokenizer_bpe`.
const PRE_TOKENIZERS: [PreTokenizer; 5] = [
    PreTokenizer {
        names: &["default"],
        expressions: &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
        ignore_merges: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["gpt-2"],
        expressions: &[GPT2],
        ignore_merges: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["smollm"],
        expressions: &[r"\p{N}", GPT2],
        ignore_merges: false,
        adds_bos: false,
        composes: false,
    },
    PreTokenizer {
        names: &["llama-bpe", "llama3", "llama-v3"],
        expressions: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: true,
        adds_bos: true,
        composes: false,
    },
    PreTokenizer {
        names: &["qwen2"],
        expressions: &[
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignore_merges: false,
        adds_bos: false,
        composes: true,
    },
];

/// Builds the tokenizer.
pub(super) fn build(keys: &Keys) -> Result<TextTokenizer, CheckpointError> {
    let model = keys.text(MODEL)?.ok_or_else(|| keys.missing(MODEL))?;
    if model != "gpt2" {
        let remedy = "only gpt2 (byte-level BPE) is; give the model as a Hugging Face directory";
        return Err(refused(keys, MODEL, model, remedy));
    }
    let pre = pre_tokenizer(keys)?;
    let tokens = keys.texts(TOKENS)?.ok_or_else(|| keys.missing(TOKENS))?;
    let types = keys.integers(TYPES)?.unwrap_or_default();
    let merges = keys.texts(MERGES)?.ok_or_else(|| keys.missing(MERGES))?;
    let special = SpecialTokens {
        bos: token_id(keys, BOS, &tokens)?,
        eos: token_id(keys, EOS, &tokens)?,
    };
    let added = [
        (special.bos, keys.flag(ADD_BOS)?.unwrap_or(pre.adds_bos)),
        (special.eos, keys.flag(ADD_EOS)?.unwrap_or(false)),
    ]
    .map(|(token, added)| token.filter(|_| added));

    let failed = |error: tokenizers::Error| {
        CheckpointError::tokenizer(
            keys.file,
            format!("its tokenizer cannot be built ({error})"),
        )
    };
    let mut tokenizer = Tokenizer::new(byte_pairs(keys, pre, &tokens, &merges)?);
    if pre.composes {
        tokenizer.with_normalizer(Some(NFC)).map_err(failed)?;
    }
    tokenizer.with_pre_tokenizer(Some(splits(pre).map_err(failed)?));
    tokenizer
        .add_tokens(added_tokens(&tokens, &types))
        .map_err(failed)?;
    let [bos, eos] = added.map(|id| Some((tokens[id? as usize].to_owned(), id?)));
    tokenizer.with_post_processor(bos_and_eos(bos, eos).map_err(failed)?);

    let digest = sha256(|hasher| {
        for text in [model, pre.names[0]].iter().chain(&tokens).chain(&merges) {
            hasher.update((text.len() as u64).to_le_bytes());
            hasher.update(text);
        }
        hasher.update(format!("{} {types:?} {special:?} {added:?}", tokens.len()));
    });
    TextTokenizer::new(keys.file, tokenizer, &digest, special)
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

fn refused(keys: &Keys, key: &str, value: &str, remedy: &str) -> CheckpointError {
    CheckpointError::tokenizer(
        keys.file,
        format!("`{key}` is `{value}`, which is not supported; {remedy}"),
    )
}

/// A file without the key is an old one; llama.cpp then takes `default`.
fn pre_tokenizer(keys: &Keys) -> Result<&'static PreTokenizer, CheckpointError> {
    let wanted = keys.text(PRE)?.unwrap_or("default");
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

fn token_id(keys: &Keys, key: &str, tokens: &[&str]) -> Result<Option<u32>, CheckpointError> {
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

/// Tokens that are found in a text as they stand, before anything is split.
fn added_tokens(tokens: &[&str], types: &[i128]) -> Vec<AddedToken> {
    let mut seen = HashSet::new();
    tokens
        .iter()
        .zip(types)
        .filter(|(token, kind)| {
            matches!(**kind, UNKNOWN | CONTROL | USER_DEFINED) && seen.insert(**token)
        })
        .map(|(token, kind)| AddedToken::from(*token, *kind != USER_DEFINED).normalized(false))
        .collect()
}
