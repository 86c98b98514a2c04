//! What can go wrong between messages and their text.

use assay_api::ErrorCode;

/// Why a list of messages has no text, or no assistant's parts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The value is not a list of messages.
    #[error(
        "{detail}; give a list of messages such as {{\"role\": \"user\", \"content\": \"..\"}}"
    )]
    Messages {
        /// What it is instead.
        detail: String,
    },
    /// The template raises an exception of its own.
    #[error("the chat template refuses these messages: {message:?}; change them as it says")]
    Raised {
        /// What the template says.
        message: String,
    },
    /// The template does something that cannot be done with these messages.
    #[error(
        "the chat template fails with these messages: {detail}; correct the messages or the template"
    )]
    Failed {
        /// What and where.
        detail: String,
    },
    /// The template computes or writes without end.
    #[error(
        "the chat template takes more than {limit} for these messages; shorten them or correct \
         the template"
    )]
    Exhausted {
        /// The bound that was reached.
        limit: String,
    },
    /// The text up to a message is not how the whole text begins, so where the message lies in it
    /// is not known.
    #[error(
        "the chat template is not prefix-stable: with more messages it writes message {message} \
         in another way, so what the assistant says cannot be told from the rest; use \
         `\"score\": \"all\"`, or mark it in the template with `{{% generation %}}`"
    )]
    NotPrefixStable {
        /// Index of the assistant's message.
        message: usize,
    },
    /// The assistant speaks first, and the template takes no conversation without messages.
    #[error(
        "the assistant speaks first, and the chat template fails without a message before it, so \
         where the assistant's text begins is not known; begin with another role, use \
         `\"score\": \"all\"`, or mark it in the template with `{{% generation %}}`"
    )]
    NothingBefore,
}

impl ChatError {
    /// The code under which a client learns of it.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::ChatRefused
    }

    pub(crate) fn messages(detail: impl Into<String>) -> Self {
        Self::Messages {
            detail: detail.into(),
        }
    }
}
