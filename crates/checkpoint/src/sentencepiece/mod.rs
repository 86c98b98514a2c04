//! tokenizer.model: a SentencePiece model, as the tokenizer that cuts texts alike.

pub(crate) mod build;
pub(crate) mod proto;

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};
use sha2::Digest as _;
use tokenizers::AddedToken;

use self::build::{Options, Prefix};
use crate::CheckpointError;
use crate::digest::sha256;
use crate::hf_tokenizer::{SpecialNames, TOKENIZER_CONFIG, TokenizerFiles};
use crate::tokenizer::{SpecialTokens, TextTokenizer};

pub(crate) const MODEL: &str = "tokenizer.model";
/// Tokens beside those of the model, where tokenizer_config.json does not have them.
const ADDED_TOKENS: &str = "added_tokens.json";
/// The files that are read where there is no tokenizer.json.
pub(crate) const FILES: [&str; 2] = [MODEL, ADDED_TOKENS];

/// The tokenizer of a directory that has `bytes` as its tokenizer.model, from its files.
pub(crate) fn load(
    files: &TokenizerFiles,
    bytes: &[u8],
    names: &SpecialNames,
) -> Result<TextTokenizer, CheckpointError> {
    let label = files.label_of(MODEL);
    let model = proto::read(bytes).ok_or_else(|| {
        CheckpointError::tokenizer(
            &label,
            "it is not a SentencePiece model; load the tokenizer with AutoTokenizer and save it \
             with save_pretrained, which writes tokenizer.json",
        )
    })?;
    build::check(&label, &model)?;
    let options = options(names);
    let added = added_tokens(files, names)?;
    let mut inner = build::tokenizer(&label, &model, options)?;
    build::add_tokens(&label, &mut inner, &model, &added)?;

    let of_model = |id: i64| {
        let id = usize::try_from(id).ok()?;
        Some(model.pieces.get(id)?.text.clone())
    };
    let token = |field: &str, id: i64| match names.text(field).map(str::to_owned) {
        None => Ok(of_model(id).and_then(|text| inner.token_to_id(&text))),
        Some(text) => inner.token_to_id(&text).map(Some).ok_or_else(|| {
            let detail = format!("`{field}` is {text:?}, which the vocabulary does not have");
            CheckpointError::tokenizer(&label, format!("{detail}; correct {TOKENIZER_CONFIG}"))
        }),
    };
    let special = SpecialTokens {
        bos: token("bos_token", model.bos)?,
        eos: token("eos_token", model.eos)?,
    };
    build::post_process(&label, &mut inner, special, options)?;
    let digest = sha256(|hasher| {
        hasher.update(bytes);
        hasher.update(format!("\n{options:?} {added:?} {special:?}"));
    });
    TextTokenizer::new(&label, inner, &digest, special)
}

/// What tokenizer_config.json says of the conversion.
fn options(names: &SpecialNames) -> Options {
    let flag = |field: &str| names.config().get(field).and_then(Value::as_bool);
    let class = names
        .config()
        .get("tokenizer_class")
        .and_then(Value::as_str);
    let adds_bos = class.is_none_or(|class| class.contains("Llama") || class.contains("Gemma"));
    let prefix = match (flag("add_prefix_space"), flag("legacy")) {
        (Some(false), _) => Prefix::Never,
        (_, Some(false)) => Prefix::First,
        _ => Prefix::Always,
    };
    Options {
        prefix,
        add_bos: flag("add_bos_token").unwrap_or(adds_bos),
        add_eos: flag("add_eos_token").unwrap_or(false),
    }
}

/// The added tokens by id.
fn added_tokens(
    files: &TokenizerFiles,
    names: &SpecialNames,
) -> Result<BTreeMap<u32, AddedToken>, CheckpointError> {
    let config = files.label_of(TOKENIZER_CONFIG);
    let described = names.config().get("added_tokens_decoder");
    if let Some(described) = described.and_then(Value::as_object) {
        return described
            .iter()
            .map(|(id, token)| {
                let entry = || Some((id.parse().ok()?, added_token(token)?));
                entry().ok_or_else(|| {
                    let detail = format!("`added_tokens_decoder` has {id:?}, which is no token");
                    CheckpointError::damaged(&config, detail)
                })
            })
            .collect();
    }
    let Some(bytes) = files.get(ADDED_TOKENS) else {
        return Ok(BTreeMap::new());
    };
    let ids: HashMap<String, u32> = serde_json::from_slice(bytes).map_err(|error| {
        let detail = format!("it does not give tokens their ids ({error})");
        CheckpointError::damaged(&files.label_of(ADDED_TOKENS), detail)
    })?;
    Ok(ids
        .into_iter()
        .map(|(text, id)| (id, AddedToken::from(text, false).normalized(false)))
        .collect())
}

fn added_token(token: &Value) -> Option<AddedToken> {
    let token: &Map<String, Value> = token.as_object()?;
    let flag = |name: &str| token.get(name).and_then(Value::as_bool).unwrap_or(false);
    let text = token.get("content")?.as_str()?;
    let found = AddedToken::from(text, flag("special"))
        .normalized(flag("normalized"))
        .lstrip(flag("lstrip"))
        .rstrip(flag("rstrip"))
        .single_word(flag("single_word"));
    Some(found)
}
