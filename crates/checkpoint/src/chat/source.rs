//! Where a template comes from.

use std::collections::BTreeMap;

use serde_json::Value;

/// The variables of a template beside the messages: special tokens by name.
pub(crate) type Variables = BTreeMap<String, Value>;

/// `chat_template` of tokenizer_config.json: a template, or a list of named ones, of which
/// `default` is taken. The error says what is wrong with it.
pub(crate) fn named_default(value: &Value) -> Result<Option<&str>, String> {
    match value {
        Value::Null => Ok(None),
        Value::String(source) => Ok(Some(source)),
        Value::Array(named) => {
            let default = named
                .iter()
                .find(|one| one.get("name").and_then(Value::as_str) == Some("default"))
                .and_then(|one| one.get("template")?.as_str());
            default.map(Some).ok_or_else(|| {
                "`chat_template` is a list without a template of the name `default`; name one so"
                    .to_owned()
            })
        }
        _ => Err(
            "`chat_template` is neither a template nor a list of named ones; save the tokenizer \
             again"
                .to_owned(),
        ),
    }
}
