//! tokenizer.json and the files beside it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use sha2::Digest as _;
use tokenizers::Tokenizer;

use crate::CheckpointError;
use crate::digest::sha256;
use crate::directory::Directory;
use crate::tokenizer::{SpecialTokens, TextTokenizer};

const TOKENIZER: &str = "tokenizer.json";
/// Where the special tokens are named, the first that names one wins. config.json also has ids,
/// which differ from the tokenizer's in many checkpoints.
const SPECIAL: [&str; 2] = ["tokenizer_config.json", "special_tokens_map.json"];

/// The tokenizer of a Hugging Face directory.
pub(crate) fn load(directory: &Directory) -> Result<TextTokenizer, CheckpointError> {
    let label = directory.label(TOKENIZER);
    let bytes = directory.read(TOKENIZER)?.ok_or_else(|| {
        CheckpointError::tokenizer(
            &directory.name,
            format!(
                "it has no {TOKENIZER}; load the tokenizer with AutoTokenizer and save it with \
                 save_pretrained, which writes one"
            ),
        )
    })?;
    let inner = parse(&label, &bytes)?;
    let names = SPECIAL
        .iter()
        .map(|file| read_object(directory, file))
        .collect::<Result<Vec<_>, _>>()?;
    let find = |field: &str| {
        let text = names
            .iter()
            .find_map(|object| token_text(object.get(field)?));
        text.map(|text| {
            inner.token_to_id(text).ok_or_else(|| {
                let detail = format!("`{field}` is {text:?}, which the vocabulary does not have");
                CheckpointError::tokenizer(&label, format!("{detail}; correct {}", SPECIAL[0]))
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
