//! Tokenizers of the kind `llama`: pieces with scores, as SentencePiece has them.

use super::keys::Keys;
use super::tokenizer::{BYTE, CONTROL, Kind, TOKENS, TYPES, UNK, UNKNOWN, USER_DEFINED, token_id};
use crate::CheckpointError;
use crate::sentencepiece::build::{self, Options, Prefix, SPACE};
use crate::sentencepiece::proto::{self, Model, Piece};
use crate::tokenizer::SpecialTokens;

const SCORES: &str = "tokenizer.ggml.scores";
const ADD_SPACE: &str = "tokenizer.ggml.add_space_prefix";

pub(super) fn build<'a>(
    keys: &Keys<'a>,
    tokens: &[&str],
    types: &[i128],
) -> Result<Kind<'a>, CheckpointError> {
    let scores = keys.numbers(SCORES)?.ok_or_else(|| keys.missing(SCORES))?;
    for (key, count) in [(SCORES, scores.len()), (TYPES, types.len())] {
        if count != tokens.len() {
            let detail = format!("has {count} numbers, `{TOKENS}` has {} texts", tokens.len());
            return Err(CheckpointError::configuration(keys.file, key, detail));
        }
    }
    let prefix = if keys.flag(ADD_SPACE)?.unwrap_or(true) {
        Prefix::Always
    } else {
        Prefix::Never
    };
    let model = Model {
        pieces: tokens
            .iter()
            .zip(&scores)
            .zip(types)
            .map(|((token, score), kind)| Piece {
                text: (*token).to_owned(),
                score: *score,
                kind: piece_kind(token, *kind),
            })
            .collect(),
        kind: proto::BPE,
        byte_fallback: true,
        whitespace_as_suffix: false,
        unk: token_id(keys, UNK, tokens)?.unwrap_or(0).into(),
        bos: 1,
        eos: 2,
        characters: Vec::new(),
        dummy_prefix: true,
        remove_extra_whitespaces: false,
        escape_whitespaces: true,
    };
    build::check(keys.file, &model)?;
    if let Some((one, other)) = build::tied(keys.file, &model)? {
        let detail = format!(
            "`{SCORES}` gives {one:?} and {other:?} the same score, so that it does not say which \
             of them is made first; give the model as a Hugging Face directory"
        );
        return Err(CheckpointError::tokenizer(keys.file, detail));
    }
    let options = Options {
        prefix,
        add_bos: true,
        add_eos: false,
    };
    let default = |id: u32| Some(id).filter(|id| (*id as usize) < tokens.len());
    Ok(Kind {
        tokenizer: build::tokenizer(keys.file, &model, options)?,
        adds_bos: true,
        special: SpecialTokens {
            bos: default(1),
            eos: default(2),
        },
        name: "scores",
        merges: Vec::new(),
        rest: format!("{scores:?} {prefix:?} {}", model.unk),
    })
}

/// What a token is to the merging of pieces: one that is found in the text as it stands is none
/// of it, unless it has a space as pieces write one, for which texts only come to have it then.
fn piece_kind(token: &str, kind: i128) -> u64 {
    match kind {
        UNKNOWN => proto::UNKNOWN,
        CONTROL | USER_DEFINED if !token.contains(SPACE) => proto::CONTROL,
        BYTE => proto::BYTE,
        _ => proto::NORMAL,
    }
}
