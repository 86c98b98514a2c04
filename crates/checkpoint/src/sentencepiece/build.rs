//! From a SentencePiece model to a tokenizer, as transformers converts one.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{NormalizerWrapper, Precompiled, Prepend, Replace, Sequence};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, ModelWrapper, SplitDelimiterBehavior, Tokenizer};

use super::proto::{self, Model, Piece};
use crate::CheckpointError;
use crate::tokenizer::{SpecialTokens, bos_and_eos};

/// What a space is in the vocabulary.
pub(crate) const SPACE: char = '\u{2581}';

/// Bytes of the longest piece. Those of models have some tens; the time to find all ways to cut
/// pieces in two grows with the square.
const MAX_PIECE: usize = 1024;

/// Bytes of all merges for each byte of the pieces. Those of models are some two or three; pieces
/// made to be cut anywhere would have half as many as the longest of them is long.
const MAX_MERGED: usize = 64;

/// What the files beside the model decide.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) prefix: Prefix,
    pub(crate) add_bos: bool,
    pub(crate) add_eos: bool,
}

/// What a space goes in front of, where the model wants one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefix {
    /// Nothing.
    Never,
    /// The text.
    First,
    /// Each part of the text between added tokens: what transformers calls legacy.
    Always,
}

fn failed(label: &str, error: &tokenizers::Error) -> CheckpointError {
    CheckpointError::tokenizer(label, format!("its tokenizer cannot be built ({error})"))
}

/// Refuses by name what has no equivalent.
pub(crate) fn check(label: &str, model: &Model) -> Result<(), CheckpointError> {
    let refused = |what: &str| {
        let detail = format!(
            "{what}, which is not supported; load the tokenizer with AutoTokenizer and save it \
             with save_pretrained, which writes tokenizer.json"
        );
        Err(CheckpointError::tokenizer(label, detail))
    };
    match model.kind {
        proto::UNIGRAM | proto::BPE => {}
        3 => return refused("its `model_type` is WORD"),
        4 => return refused("its `model_type` is CHAR"),
        other => return refused(&format!("its `model_type` is {other}")),
    }
    if model.whitespace_as_suffix {
        return refused("it has `treat_whitespace_as_suffix`");
    }
    if !model.escape_whitespaces {
        return refused("it has `escape_whitespaces` switched off");
    }
    let mut seen = HashMap::new();
    for (id, piece) in model.pieces.iter().enumerate() {
        match piece.kind {
            proto::NORMAL | proto::UNKNOWN | proto::CONTROL | proto::USER_DEFINED | proto::BYTE => {
            }
            proto::UNUSED => return refused(&format!("piece {id} is of the type UNUSED")),
            other => return refused(&format!("piece {id} is of the type {other}")),
        }
        if piece.text.is_empty() || !piece.score.is_finite() {
            let detail = format!("piece {id} is empty or has no score");
            return Err(CheckpointError::damaged(label, detail));
        }
        if piece.kind == proto::NORMAL && piece.text.len() > MAX_PIECE {
            let detail = format!(
                "piece {id} has {} bytes, more than {MAX_PIECE}",
                piece.text.len()
            );
            return Err(CheckpointError::damaged(label, detail));
        }
        if let Some(other) = seen.insert(&piece.text, id) {
            let detail = format!("pieces {other} and {id} are both {:?}", piece.text);
            return Err(CheckpointError::damaged(label, detail));
        }
    }
    let unk = usize::try_from(model.unk).ok();
    if unk.is_none_or(|id| id >= model.pieces.len()) {
        let detail = format!("its `unk_id` is {}, which is no piece", model.unk);
        return Err(CheckpointError::damaged(label, detail));
    }
    Ok(())
}

/// The tokenizer without added tokens and post-processor.
pub(crate) fn tokenizer(
    label: &str,
    model: &Model,
    options: Options,
) -> Result<Tokenizer, CheckpointError> {
    let failed = |error: tokenizers::Error| failed(label, &error);
    let merges = match model.kind {
        proto::BPE => merges(label, model)?,
        _ => Vec::new(),
    };
    let mut tokenizer = Tokenizer::new(pieces(model, merges).map_err(failed)?);
    let prefix = if model.dummy_prefix {
        options.prefix
    } else {
        Prefix::Never
    };
    let mut normalizers = Vec::new();
    if !model.characters.is_empty() {
        let rules = catch_unwind(AssertUnwindSafe(|| Precompiled::from(&model.characters)));
        let rules = rules.ok().and_then(Result::ok).ok_or_else(|| {
            CheckpointError::damaged(label, "its `precompiled_charsmap` cannot be read")
        })?;
        normalizers.push(NormalizerWrapper::from(rules));
    }
    if model.remove_extra_whitespaces {
        normalizers.push(replace(&format!(r"\A +|[ {SPACE}]+\z"), "").map_err(failed)?);
        normalizers.push(replace(" {2,}", " ").map_err(failed)?);
    }
    if prefix == Prefix::Always {
        normalizers.push(Prepend::new(SPACE.to_string()).into());
    }
    let space = ReplacePattern::String(" ".into());
    let space = Replace::new(space, SPACE.to_string()).map_err(failed)?;
    normalizers.push(space.into());
    tokenizer
        .with_normalizer(Some(Sequence::new(normalizers)))
        .map_err(failed)?;

    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    if prefix == Prefix::First {
        steps.push(Metaspace::new(SPACE, PrependScheme::First, false).into());
    }
    let whole = user_defined(model);
    if !whole.is_empty() {
        let pattern = SplitPattern::Regex(whole);
        let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
        steps.push(split.map_err(failed)?.into());
    }
    if !steps.is_empty() {
        let steps = tokenizers::pre_tokenizers::sequence::Sequence::new(steps);
        tokenizer.with_pre_tokenizer(Some(steps));
    }
    Ok(tokenizer)
}

fn replace(pattern: &str, content: &str) -> tokenizers::Result<NormalizerWrapper> {
    Replace::new(ReplacePattern::Regex(pattern.into()), content).map(Into::into)
}

/// An expression for the pieces that SentencePiece never cuts or joins, longest first.
fn user_defined(model: &Model) -> String {
    let mut texts: Vec<String> = model
        .pieces
        .iter()
        .filter(|piece| piece.kind == proto::USER_DEFINED)
        .map(|piece| piece.text.clone())
        .collect();
    texts.sort_by_key(|text| std::cmp::Reverse(text.chars().count()));
    let escaped = texts.iter().map(|text| {
        text.chars()
            .flat_map(|character| {
                let escape = character.is_ascii_punctuation().then_some('\\');
                escape.into_iter().chain([character])
            })
            .collect::<String>()
    });
    escaped.collect::<Vec<_>>().join("|")
}

fn pieces(model: &Model, merges: Vec<(String, String)>) -> tokenizers::Result<ModelWrapper> {
    let unk = usize::try_from(model.unk).unwrap_or_default();
    if model.kind == proto::UNIGRAM {
        let scored = |piece: &Piece| (piece.text.clone(), f64::from(piece.score));
        let vocabulary = model.pieces.iter().map(scored).collect();
        return Unigram::from(vocabulary, Some(unk), model.byte_fallback).map(Into::into);
    }
    let vocabulary: Vocab = (0_u32..)
        .zip(&model.pieces)
        .map(|(id, piece)| (piece.text.clone(), id))
        .collect();
    let has_whole = model
        .pieces
        .iter()
        .any(|piece| piece.kind == proto::USER_DEFINED);
    let built = BPE::builder()
        .vocab_and_merges(vocabulary, merges)
        .unk_token(model.pieces[unk].text.clone())
        .fuse_unk(true)
        .byte_fallback(model.byte_fallback)
        .ignore_merges(has_whole)
        .build()?;
    Ok(built.into())
}

/// SentencePiece joins the two neighbours whose joint piece has the highest score. So each way to
/// cut a piece in two others is a merge, in the order of the scores.
fn merges(label: &str, model: &Model) -> Result<Vec<(String, String)>, CheckpointError> {
    let ranked = ranked(label, model)?.into_iter();
    Ok(ranked
        .map(|(_, left, right)| (left.to_owned(), right.to_owned()))
        .collect())
}

/// Two pieces that merges make and that have the same score, if there are any.
pub(crate) fn tied<'a>(
    label: &str,
    model: &'a Model,
) -> Result<Option<(&'a str, &'a str)>, CheckpointError> {
    let pieces = &model.pieces;
    let same = |one: usize, other: usize| pieces[one].score.total_cmp(&pieces[other].score).is_eq();
    let ranked = ranked(label, model)?;
    let mut pairs = ranked.windows(2).map(|pair| (pair[0].0, pair[1].0));
    let found = pairs.find(|(one, other)| one != other && same(*one, *other));
    let text = |id: usize| pieces[id].text.as_str();
    Ok(found.map(|(one, other)| (text(one), text(other))))
}

/// The merges: the id of what each makes, and its two parts.
fn ranked<'a>(
    label: &str,
    model: &'a Model,
) -> Result<Vec<(usize, &'a str, &'a str)>, CheckpointError> {
    let normal: HashMap<&str, usize> = model
        .pieces
        .iter()
        .enumerate()
        .filter(|(_, piece)| piece.kind == proto::NORMAL)
        .map(|(id, piece)| (piece.text.as_str(), id))
        .collect();
    let mut ranked: Vec<(usize, &str, &str)> = Vec::new();
    let mut left_over = MAX_MERGED * normal.keys().map(|text| text.len()).sum::<usize>();
    for (text, id) in &normal {
        for (cut, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(cut);
            if normal.contains_key(left) && normal.contains_key(right) {
                left_over = left_over.checked_sub(text.len()).ok_or_else(|| {
                    let detail = format!(
                        "its merges are more than {MAX_MERGED} times as long as its pieces"
                    );
                    CheckpointError::damaged(label, detail)
                })?;
                ranked.push((*id, left, right));
            }
        }
    }
    let score = |id: usize| model.pieces[id].score;
    ranked.sort_unstable_by(|one, other| {
        let by_score = score(other.0).total_cmp(&score(one.0));
        by_score.then_with(|| one.cmp(other))
    });
    Ok(ranked)
}

/// Adds the tokens that are found in a text as they stand: the model's own, then those beside it,
/// which must get the ids they are said to have.
pub(crate) fn add_tokens(
    label: &str,
    tokenizer: &mut Tokenizer,
    model: &Model,
    added: &BTreeMap<u32, AddedToken>,
) -> Result<(), CheckpointError> {
    let own = model
        .pieces
        .iter()
        .filter(|piece| matches!(piece.kind, proto::UNKNOWN | proto::CONTROL))
        .map(|piece| AddedToken::from(piece.text.as_str(), true).normalized(false));
    let add = |tokenizer: &mut Tokenizer, tokens: Vec<AddedToken>| {
        let result = tokenizer.add_tokens(tokens);
        result.map(drop).map_err(|error| failed(label, &error))
    };
    add(tokenizer, own.collect())?;
    // All at once: each call compiles the list of all of them anew.
    add(tokenizer, added.values().cloned().collect())?;
    for (id, token) in added {
        let text = &token.content;
        let given = tokenizer.token_to_id(text);
        if given != Some(*id) {
            let given = given.map_or("none".to_owned(), |given| given.to_string());
            let detail = format!(
                "the added token {text:?} should have the id {id}, but behind this vocabulary it \
                 gets {given}; save the tokenizer as tokenizer.json"
            );
            return Err(CheckpointError::tokenizer(label, detail));
        }
    }
    Ok(())
}

/// Puts BOS and EOS where the options want them.
pub(crate) fn post_process(
    label: &str,
    tokenizer: &mut Tokenizer,
    special: SpecialTokens,
    options: Options,
) -> Result<(), CheckpointError> {
    let named = |id: Option<u32>, wanted: bool| {
        let id = id.filter(|_| wanted)?;
        Some((tokenizer.id_to_token(id)?, id))
    };
    let (bos, eos) = (
        named(special.bos, options.add_bos),
        named(special.eos, options.add_eos),
    );
    let template = bos_and_eos(bos, eos).map_err(|error| failed(label, &error))?;
    tokenizer.with_post_processor(template);
    Ok(())
}
