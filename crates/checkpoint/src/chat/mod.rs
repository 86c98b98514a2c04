//! Chat templates: messages to text, as transformers renders them.

mod assistant;
mod engine;
mod error;
mod messages;
mod methods;
mod python;
mod source;
mod syntax;

use std::ops::Range;

use minijinja::Value;
use minijinja::value::Serde;
use sha2::Digest as _;

use self::engine::Engine;
use crate::CheckpointError;
use crate::digest::sha256;

pub use self::error::ChatError;
pub(crate) use self::source::{Variables, named_default};

/// A chat template with the special tokens it may write.
///
/// It renders what `apply_chat_template` of transformers 5 renders, without tools and documents.
/// One thing differs, for a score must not depend on the day: `strftime_now` takes it to be
/// 26 July 2024, the date that Llama 3.1's template takes where there is no clock.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    engine: Engine,
    digest: String,
}

/// The text of a list of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The text; it has the special tokens that the template writes, a BOS among them.
    pub text: String,
    /// Byte ranges of what the assistant says, sorted and disjoint; none unless asked for.
    pub assistant: Vec<Range<usize>>,
}

impl ChatTemplate {
    /// Compiles a template; `file` is what it is called in errors.
    pub(crate) fn new(
        file: &str,
        source: &str,
        variables: &Variables,
    ) -> Result<Self, CheckpointError> {
        let engine = Engine::new(source, variables)
            .map_err(|detail| CheckpointError::chat_template(file, detail))?;
        let hex = sha256(|hasher| {
            hasher.update(source);
            for (name, value) in variables {
                hasher.update(format!("\n{name} {value:?}"));
            }
        });
        Ok(Self {
            engine,
            digest: format!("sha256:{hex}"),
        })
    }

    /// `sha256:` and the digest of the template and of the special tokens it may write.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether the template says itself where the assistant speaks, with `{% generation %}`.
    pub fn marks_assistant(&self) -> bool {
        self.engine.marks_assistant()
    }

    /// The text of `messages`, a list of objects with `role` and `content`.
    ///
    /// What the assistant says is looked for only if `want_assistant`: the `{% generation %}`
    /// blocks where the template has them. Else it is, for each of its messages, what the text up
    /// to it has more than the text before it with the prompt for an answer.
    ///
    /// The keys of objects inside of a message, which a template may write, are in the order that
    /// `messages` iterates over; [`ChatTemplate::render_json`] keeps a file's order.
    ///
    /// # Errors
    /// See [`ChatError`].
    pub fn render(
        &self,
        messages: &serde_json::Value,
        want_assistant: bool,
    ) -> Result<Rendered, ChatError> {
        self.render_value(&Value::from(Serde(messages)), want_assistant)
    }

    /// As [`ChatTemplate::render`], of messages as they are written in JSON.
    ///
    /// # Errors
    /// See [`ChatError`].
    pub fn render_json(&self, messages: &str, want_assistant: bool) -> Result<Rendered, ChatError> {
        let value: Value = serde_json::from_str(messages)
            .map_err(|error| ChatError::messages(format!("it is not JSON ({error})")))?;
        self.render_value(&value, want_assistant)
    }

    fn render_value(&self, value: &Value, want_assistant: bool) -> Result<Rendered, ChatError> {
        let messages = messages::checked(value)?;
        let (engine, given) = (self.engine.clone(), messages.clone());
        engine::in_bounds(&messages, move || {
            let text = engine.render(&given, false)?;
            let assistant = match want_assistant {
                false => Vec::new(),
                true if engine.marks_assistant() => engine.generations(&given, &text)?,
                true => assistant::by_prefixes(&engine, &given, &text)?,
            };
            Ok(Rendered { text, assistant })
        })
    }
}
