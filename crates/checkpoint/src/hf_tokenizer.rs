//! tokenizer.json, or tokenizer.model, and the files beside it.

use std::collections::BTreeMap;
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
/// The files of [`SpecialNames`].
const SPECIAL_NAMES: [&str; 2] = [TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP];

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
    let names = TokenizerFiles::of(directory, &SPECIAL_NAMES)?.special_names()?;
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

/// The files of a Hugging Face directory that decide its tokenizer, as they were read.
pub(crate) struct TokenizerFiles<'a> {
    directory: &'a Directory,
    files: BTreeMap<&'static str, Vec<u8>>,
}

impl<'a> TokenizerFiles<'a> {
    /// Reads all of them.
    pub(crate) fn read(directory: &'a Directory) -> Result<Self, CheckpointError> {
        let mut files = Self::of(directory, &SPECIAL_NAMES)?;
        files.add(&[TOKENIZER])?;
        if files.get(TOKENIZER).is_none() {
            files.add(&sentencepiece::FILES)?;
        }
        Ok(files)
    }

    /// Reads those of these names that there are.
    fn of(directory: &'a Directory, names: &[&'static str]) -> Result<Self, CheckpointError> {
        let files = BTreeMap::new();
        let mut read = Self { directory, files };
        read.add(names)?;
        Ok(read)
    }

    fn add(&mut self, names: &[&'static str]) -> Result<(), CheckpointError> {
        for name in names {
            if let Some(bytes) = self.directory.read(name)? {
                self.files.insert(name, bytes);
            }
        }
        Ok(())
    }

    /// The bytes of a file, or nothing if there is none of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.files.get(name).map(Vec::as_slice)
    }

    /// What a file is called in errors.
    pub(crate) fn label_of(&self, name: &str) -> String {
        self.directory.label(name)
    }

    /// What the file that has the tokens is called in errors.
    pub(crate) fn label(&self) -> String {
        let has_model = |name: &&str| self.files.contains_key(*name);
        let name = [TOKENIZER, sentencepiece::MODEL]
            .into_iter()
            .find(has_model);
        self.label_of(name.unwrap_or(TOKENIZER))
    }

    /// SHA-256 over the names and the bytes of all.
    pub(crate) fn digest(&self) -> String {
        sha256(|hasher| {
            for (name, bytes) in &self.files {
                hasher.update(format!("{name} {}\n", bytes.len()));
                hasher.update(bytes);
            }
        })
    }

    fn special_names(&self) -> Result<SpecialNames, CheckpointError> {
        let [config, map] = SPECIAL_NAMES.map(|name| self.object(name));
        Ok(SpecialNames([config?, map?]))
    }

    /// A JSON file; null where there is none.
    fn object(&self, name: &str) -> Result<Value, CheckpointError> {
        let parsed = self.get(name).map(serde_json::from_slice).transpose();
        parsed.map(Option::unwrap_or_default).map_err(|error| {
            CheckpointError::damaged(&self.label_of(name), format!("it is not JSON ({error})"))
        })
    }
}

/// The tokenizer of a Hugging Face directory.
pub(crate) fn load(files: &TokenizerFiles) -> Result<TextTokenizer, CheckpointError> {
    let label = files.label();
    let names = files.special_names()?;
    let Some(bytes) = files.get(TOKENIZER) else {
        if let Some(model) = files.get(sentencepiece::MODEL) {
            return sentencepiece::load(files, model, &names);
        }
        let detail = format!(
            "it has neither {TOKENIZER} nor {}; load the tokenizer with AutoTokenizer and save it \
             with save_pretrained, which writes {TOKENIZER}",
            sentencepiece::MODEL
        );
        return Err(CheckpointError::tokenizer(&files.directory.name, detail));
    };
    let inner = parse(&label, bytes)?;
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
        hasher.update(bytes);
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

/// A token is written as a string or as an object with its `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}
