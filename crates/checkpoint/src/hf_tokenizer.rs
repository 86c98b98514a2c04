//! tokenizer.json, or tokenizer.model, and the files beside it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use sha2::Digest as _;
use tokenizers::Tokenizer;

use crate::chat::{Variables, named_default};
use crate::digest::sha256;
use crate::directory::Directory;
use crate::tokenizer::{SpecialTokens, TextTokenizer};
use crate::{ChatTemplate, CheckpointError, sentencepiece};

const TOKENIZER: &str = "tokenizer.json";
pub(crate) const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
const SPECIAL_TOKENS_MAP: &str = "special_tokens_map.json";

/// The special tokens that a chat template may write.
const VARIABLES: [&str; 7] = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
];
const CHAT_TEMPLATE: &str = "chat_template.jinja";

/// The chat template of a Hugging Face directory: a file of its own wins over the field.
pub(crate) fn chat_template(
    directory: &Directory,
) -> Result<Option<ChatTemplate>, CheckpointError> {
    let names = SpecialNames::read(directory)?;
    let variables: Variables = VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), Value::from(names.text(name)?))))
        .collect();
    if let Some(bytes) = directory.read(CHAT_TEMPLATE)? {
        let label = directory.label(CHAT_TEMPLATE);
        let source = std::str::from_utf8(&bytes)
            .map_err(|_| CheckpointError::chat_template(&label, "it is not UTF-8"))?;
        return ChatTemplate::new(&label, source, &variables).map(Some);
    }
    let label = directory.label(TOKENIZER_CONFIG);
    let field = names.config().get("chat_template");
    named_default(field.unwrap_or(&Value::Null))
        .map_err(|detail| CheckpointError::chat_template(&label, detail))?
        .map(|source| ChatTemplate::new(&label, source, &variables))
        .transpose()
}

/// The tokenizer of a Hugging Face directory.
pub(crate) fn load(directory: &Directory) -> Result<TextTokenizer, CheckpointError> {
    let label = directory.label(TOKENIZER);
    let names = SpecialNames::read(directory)?;
    let Some(bytes) = directory.read(TOKENIZER)? else {
        if let Some(model) = directory.read(sentencepiece::MODEL)? {
            return sentencepiece::load(directory, &model, &names);
        }
        let detail = format!(
            "it has neither {TOKENIZER} nor {}; load the tokenizer with AutoTokenizer and save it \
             with save_pretrained, which writes {TOKENIZER}",
            sentencepiece::MODEL
        );
        return Err(CheckpointError::tokenizer(&directory.name, detail));
    };
    let inner = parse(&label, &bytes)?;
    let find = |field: &str| {
        let text = names.text(field);
        text.map(|text| {
            inner.token_to_id(text).ok_or_else(|| {
                let detail = format!("`{field}` is {text:?}, which the vocabulary does not have");
                CheckpointError::tokenizer(&label, format!("{detail}; correct {TOKENIZER_CONFIG}"))
            })
        })
        .transpose()
    };
    let special = SpecialTokens {
        bos: find("bos_token")?,
        eos: find("eos_token")?,
    };
    let digest = sha256(|hasher| {
        hasher.update(&bytes);
        hasher.update(format!("\nbos {:?} eos {:?}", special.bos, special.eos));
    });
    TextTokenizer::new(&label, inner, &digest, special)
}

fn parse(label: &str, bytes: &[u8]) -> Result<Tokenizer, CheckpointError> {
    // The tokenizers crate indexes out of bounds on some damaged files, such as one with a merge
    // longer than every token; a file must not be able to end the process.
    let parsed = catch_unwind(AssertUnwindSafe(|| Tokenizer::from_bytes(bytes)));
    let cause = match parsed {
        Ok(Ok(tokenizer)) => return Ok(tokenizer),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "its vocabulary and merges contradict each other".to_owned(),
    };
    let detail = format!("it is not a tokenizer ({cause}); copy or save the tokenizer again");
    Err(CheckpointError::tokenizer(label, detail))
}

/// The files that name special tokens, the first that names one wins. config.json also has ids,
/// which differ from the tokenizer's in many checkpoints.
pub(crate) struct SpecialNames([Value; 2]);

impl SpecialNames {
    fn read(directory: &Directory) -> Result<Self, CheckpointError> {
        let config = read_object(directory, TOKENIZER_CONFIG)?;
        Ok(Self([config, read_object(directory, SPECIAL_TOKENS_MAP)?]))
    }

    /// tokenizer_config.json; null where there is none.
    pub(crate) fn config(&self) -> &Value {
        &self.0[0]
    }

    /// The text of a special token.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.0
            .iter()
            .find_map(|object| token_text(object.get(field)?))
    }
}

fn read_object(directory: &Directory, file: &str) -> Result<Value, CheckpointError> {
    match directory.read(file)? {
        None => Ok(Value::Null),
        Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
            CheckpointError::damaged(&directory.label(file), format!("it is not JSON ({error})"))
        }),
    }
}

/// A token is written as a string or as an object with its `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}
