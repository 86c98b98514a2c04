//! Messages as transformers gives them to a template.

use minijinja::Value;
use minijinja::value::ValueKind;

use super::ChatError;

/// Names of a message's reasoning, the first that is there wins.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// One message: what the template sees, and what is asked about it here.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) value: Value,
    pub(super) is_assistant: bool,
    /// About how much of it there is, in bytes.
    pub(super) size: usize,
}

/// Checks the messages. As transformers does, keys without a value are dropped, and reasoning is
/// known under the names that templates use.
pub(super) fn checked(value: &Value) -> Result<Vec<Message>, ChatError> {
    if !matches!(value.kind(), ValueKind::Seq) {
        let detail = format!("the messages are {}", described(value));
        return Err(ChatError::messages(detail));
    }
    let messages = items(value)
        .iter()
        .enumerate()
        .map(|(index, value)| message(index, value))
        .collect::<Result<Vec<_>, _>>()?;
    if messages.is_empty() {
        return Err(ChatError::messages("there are no messages"));
    }
    Ok(messages)
}

fn message(index: usize, value: &Value) -> Result<Message, ChatError> {
    let wrong = |detail: String| ChatError::messages(format!("message {index} {detail}"));
    if value.kind() != ValueKind::Map {
        return Err(wrong(format!("is {}", described(value))));
    }
    let mut pairs: Vec<(String, Value)> = items(value)
        .into_iter()
        .map(|key| {
            let item = value.get_item(&key).unwrap_or_default();
            (key.to_string(), item)
        })
        .filter(|(_, item)| !item.is_none())
        .collect();
    let find = |name: &str| pairs.iter().find(|(key, _)| key == name);
    let role = find("role").ok_or_else(|| wrong("has no `role`".into()))?;
    let Some(role) = role.1.as_str() else {
        return Err(wrong("has a `role` that is not a string".into()));
    };
    let is_assistant = role == "assistant";
    match find("content").map(|(_, content)| content.kind()) {
        Some(ValueKind::String | ValueKind::Seq) => {}
        // Calls of tools, reasoning and the like come without.
        None if pairs.len() > 1 => {}
        None => return Err(wrong("has no `content`".into())),
        Some(_) => return Err(wrong("has a `content` that is not a string".into())),
    }
    let reasoning = REASONING
        .iter()
        .find_map(|name| find(name))
        .map(|(_, reasoning)| reasoning.clone());
    if let Some(reasoning) = reasoning {
        for (name, replaces) in [("thinking", false), ("reasoning_content", true)] {
            match pairs.iter_mut().find(|(key, _)| key == name) {
                Some((_, value)) if replaces => *value = reasoning.clone(),
                Some(_) => {}
                None => pairs.push((name.to_owned(), reasoning.clone())),
            }
        }
    }
    let size = pairs.iter().map(|(key, item)| key.len() + size(item)).sum();
    Ok(Message {
        value: Value::from_pairs(pairs),
        is_assistant,
        size,
    })
}

/// The items of a list, or the keys of a map.
pub(super) fn items(value: &Value) -> Vec<Value> {
    value.try_iter().into_iter().flatten().collect()
}

fn size(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq => items(value).iter().map(size).sum(),
        ValueKind::Map => items(value)
            .iter()
            .map(|key| size(key) + value.get_item(key).map_or(0, |item| size(&item)))
            .sum(),
        _ => 8,
    }
}

fn described(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::None => "null",
        ValueKind::Bool => "true or false",
        ValueKind::Number => "a number",
        ValueKind::String => "a string",
        ValueKind::Seq => "a list",
        ValueKind::Map => "an object",
        _ => "something else",
    }
}
