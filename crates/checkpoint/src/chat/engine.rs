//! The template engine, set up as transformers sets up Jinja, and bounded.

use std::io::{self, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use chrono::NaiveDate;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};

use super::messages::Message;
use super::syntax::{GENERATION, translate};
use super::{ChatError, Variables, methods, python};

const NAME: &str = "chat template";
/// Largest template, in bytes.
const MAX_SOURCE: usize = 1 << 20;
/// Steps of a rendering, to which each message adds [`STEPS_PER_MESSAGE`], and four bytes of it one.
/// A step is an instruction, or 64 bytes made, so this bounds memory too.
const STEPS: usize = 500_000;
const STEPS_PER_MESSAGE: usize = 1_000;
/// Stack of the thread that renders, to which each step adds [`STACK_PER_STEP`]: a template can
/// put a list into a list with each few steps, and the engine goes through them by recursion.
/// Pages that are not used take no memory.
const STACK: usize = 64 << 20;
const STACK_PER_STEP: usize = 256;
/// Time for a rendering with all that is asked of it, to which each message adds
/// [`TIME_PER_MESSAGE`]. A usual one takes less than a millisecond.
const TIME: Duration = Duration::from_secs(10);
const TIME_PER_MESSAGE: Duration = Duration::from_millis(100);
/// The most time for one document: whoever renders it waits.
const MOST_TIME: Duration = Duration::from_secs(30);
/// Bytes of a text, to which each byte of the messages adds [`OUTPUT_PER_BYTE`].
const OUTPUT: usize = 16 << 20;
const OUTPUT_PER_BYTE: usize = 8;
/// Macros and recursive loops inside of each other.
const DEPTH: usize = 100;

/// A compiled template.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    environment: Environment<'static>,
    variables: Vec<(String, Value)>,
    has_generation: bool,
}

/// What the template says when it raises an exception.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl Engine {
    /// Compiles a template; the error is a sentence about where it is wrong.
    pub(super) fn new(source: &str, variables: &Variables) -> Result<Self, String> {
        if source.len() > MAX_SOURCE {
            let size = source.len();
            return Err(format!(
                "it has {size} bytes, but {MAX_SOURCE} are the most"
            ));
        }
        let translated = translate(source);
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| error.to_string())?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_recursion_limit(DEPTH);
        environment.set_unknown_method_callback(methods::call);
        environment.set_formatter(python::write);
        python::install(&mut environment);
        environment.add_function("raise_exception", raise);
        environment.add_function("strftime_now", strftime);
        environment.add_function(GENERATION, |state: &mut State, kwargs: Kwargs| {
            generated(state, &kwargs, "", "")
        });
        catch_unwind(AssertUnwindSafe(|| {
            environment.add_template_owned(NAME, translated.source)
        }))
        .map_err(|_| "it makes the template engine fail".to_owned())?
        .map_err(|error| sentence(&error))?;
        Ok(Self {
            environment,
            variables: variables
                .iter()
                .map(|(name, value)| (name.clone(), Value::from(Serde(value))))
                .collect(),
            has_generation: translated.has_generation,
        })
    }

    pub(super) fn marks_assistant(&self) -> bool {
        self.has_generation
    }

    /// The text of some messages, with the prompt for an answer behind if wanted.
    pub(super) fn render(&self, messages: &[Message], prompt: bool) -> Result<String, ChatError> {
        self.run(&mut self.environment.clone(), messages, prompt)
    }

    /// The `{% generation %}` blocks in `text`, which is what the messages render to.
    pub(super) fn generations(
        &self,
        messages: &[Message],
        text: &str,
    ) -> Result<Vec<Range<usize>>, ChatError> {
        let lost = |detail: &str| ChatError::Failed {
            detail: format!("its {{% generation %}} blocks {detail}"),
        };
        // Non-characters: they are not in a text but by malice, and then others are taken.
        let mut free = ('\u{fdd0}'..='\u{fdef}').filter(|mark| !text.contains(*mark));
        let (Some(open), Some(close)) = (free.next(), free.next()) else {
            return Err(lost("cannot be told from its text"));
        };
        let mut environment = self.environment.clone();
        let (before, after) = (open.to_string(), close.to_string());
        environment.add_function(GENERATION, move |state: &mut State, kwargs: Kwargs| {
            generated(state, &kwargs, &before, &after)
        });
        let marked = self.run(&mut environment, messages, false)?;
        let mut ranges: Vec<Range<usize>> = Vec::new();
        let (mut plain, mut start) = (0, None);
        for character in marked.chars() {
            if character == open {
                start = Some(plain);
            } else if character == close {
                let start = start.take().ok_or_else(|| lost("contain one another"))?;
                ranges.push(start..plain);
            } else {
                plain += character.len_utf8();
            }
        }
        if marked.replace([open, close], "") == text {
            Ok(ranges)
        } else {
            Err(lost("are changed after they are written"))
        }
    }

    fn run(
        &self,
        environment: &mut Environment<'static>,
        messages: &[Message],
        prompt: bool,
    ) -> Result<String, ChatError> {
        let size = messages.iter().map(|message| message.size).sum::<usize>();
        environment.set_fuel(Some(steps(messages) as u64));
        let mut out = Bounded {
            bytes: Vec::new(),
            left: OUTPUT + size.saturating_mul(OUTPUT_PER_BYTE),
        };
        let list: Value = messages
            .iter()
            .map(|message| message.value.clone())
            .collect();
        let given = [
            ("messages", list),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
            ("add_generation_prompt", Value::from(prompt)),
        ];
        let context = self
            .variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.clone()))
            .chain(given);
        let context = Value::from_pairs(context);
        let rendered = catch_unwind(AssertUnwindSafe(|| {
            environment
                .get_template(NAME)?
                .render_captured_to(context, &mut out)
                .map(drop)
        }));
        match rendered {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(failure(&error, out.left)),
            Err(_) => {
                return Err(ChatError::Failed {
                    detail: "it makes the template engine fail".into(),
                });
            }
        }
        String::from_utf8(out.bytes).map_err(|_| ChatError::Failed {
            detail: "it writes what is not UTF-8".into(),
        })
    }
}

/// Steps that a rendering of some messages may take.
fn steps(messages: &[Message]) -> usize {
    let size = messages.iter().map(|message| message.size).sum::<usize>();
    STEPS + messages.len().saturating_mul(STEPS_PER_MESSAGE) + size / 4
}

/// Calls something that renders these messages where the stack is large enough for it, and waits
/// for as long as such messages may take. Comparing and joining lists of lists takes no steps in
/// the engine, so a template made for it can do so for ever; its thread is then left to itself.
pub(super) fn in_bounds<T: Send + 'static>(
    messages: &[Message],
    call: impl FnOnce() -> Result<T, ChatError> + Send + 'static,
) -> Result<T, ChatError> {
    let size = STACK + steps(messages).saturating_mul(STACK_PER_STEP);
    let failed = |detail: String| ChatError::Failed { detail };
    let (done, result) = mpsc::channel();
    thread::Builder::new()
        .name("chat template".into())
        .stack_size(size)
        .spawn(move || done.send(call()))
        .map_err(|error| failed(format!("no thread can be started ({error})")))?;
    let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
    let patience = TIME.saturating_add(TIME_PER_MESSAGE.saturating_mul(count));
    let patience = patience.min(MOST_TIME);
    match result.recv_timeout(patience) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(ChatError::Exhausted {
            limit: format!("{} seconds", patience.as_secs()),
        }),
        Err(RecvTimeoutError::Disconnected) => {
            Err(failed("it makes the template engine fail".into()))
        }
    }
}

/// What a generation block calls with its body.
fn generated(
    state: &mut State,
    kwargs: &Kwargs,
    before: &str,
    after: &str,
) -> Result<String, Error> {
    let caller: Value = kwargs.get("caller")?;
    let body = caller.call(state, &[])?;
    Ok(format!("{before}{body}{after}"))
}

fn raise(message: &str) -> Result<Value, Error> {
    let error = Error::new(ErrorKind::InvalidOperation, "the template raises");
    Err(error.with_source(Raised(message.to_owned())))
}

/// The time that `strftime_now` takes for now.
fn strftime(format: &str) -> Result<String, Error> {
    use std::fmt::Write as _;
    let now = NaiveDate::from_ymd_opt(2024, 7, 26).and_then(|date| date.and_hms_opt(0, 0, 0));
    let mut text = String::new();
    now.map(|now| write!(text, "{}", now.format(format)))
        .and_then(Result::ok)
        .ok_or_else(|| {
            let detail = format!("strftime_now does not know the format {format:?}");
            Error::new(ErrorKind::InvalidOperation, detail)
        })?;
    Ok(text)
}

/// The innermost error says why; the outer ones say where they passed it on.
fn failure(error: &Error, left: usize) -> ChatError {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    let mut detail = sentence(error);
    loop {
        if let Some(Raised(message)) = cause.downcast_ref() {
            return ChatError::Raised {
                message: message.clone(),
            };
        }
        if let Some(error) = cause.downcast_ref::<Error>() {
            if error.kind() == ErrorKind::OutOfFuel {
                return ChatError::Exhausted {
                    limit: "the steps that such messages should take".into(),
                };
            }
            detail = sentence(error);
        }
        match cause.source() {
            Some(source) => cause = source,
            None if left == 0 => {
                return ChatError::Exhausted {
                    limit: format!("{OUTPUT} bytes and {OUTPUT_PER_BYTE} for each byte"),
                };
            }
            None => return ChatError::Failed { detail },
        }
    }
}

/// What the engine says, and at which line.
fn sentence(error: &Error) -> String {
    let kind = error.kind();
    let what = match error.detail() {
        Some(detail) => format!("{kind}: {detail}"),
        None => kind.to_string(),
    };
    match error.line() {
        Some(line) => format!("line {line}: {what}"),
        None => what,
    }
}

/// Takes a bounded number of bytes.
struct Bounded {
    bytes: Vec<u8>,
    left: usize,
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len()) else {
            self.left = 0;
            return Err(io::Error::other("the text is too long"));
        };
        self.left = left;
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
