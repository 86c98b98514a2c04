//! What the assistant says, where the template does not tell.

use std::ops::Range;

use super::ChatError;
use super::engine::Engine;
use super::messages::Message;

/// For each of the assistant's messages, the text up to it less the text before it with the prompt
/// for an answer.
pub(super) fn by_prefixes(
    engine: &Engine,
    messages: &[Message],
    text: &str,
) -> Result<Vec<Range<usize>>, ChatError> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (index, _) in messages
        .iter()
        .enumerate()
        .filter(|(_, message)| message.is_assistant)
    {
        let unstable = ChatError::NotPrefixStable { message: index };
        let prompt =
            engine
                .render(&messages[..index], true)
                .map_err(|error| match (index, error) {
                    // What fails is not these messages, but that there are none.
                    (0, ChatError::Failed { .. } | ChatError::Raised { .. }) => {
                        ChatError::NothingBefore
                    }
                    (_, error) => error,
                })?;
        let longer;
        let full = if index + 1 == messages.len() {
            text
        } else {
            longer = engine.render(&messages[..=index], false)?;
            &longer
        };
        let after_the_last = ranges.last().is_none_or(|last| last.end <= prompt.len());
        if !full.starts_with(&prompt) || !text.starts_with(full) || !after_the_last {
            return Err(unstable);
        }
        ranges.push(prompt.len()..full.len());
    }
    Ok(ranges)
}
