//! Methods of Python's strings that the engine's own copies of them get wrong.

use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::messages::items;
use super::python::{is_space, strip};

/// Calls a method that the value itself does not have.
pub(super) fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        if method == "index" && value.kind() == ValueKind::Seq {
            let (wanted,): (Value,) = from_args(args)?;
            let found = items(value).iter().position(|item| *item == wanted);
            return found.map(Value::from).ok_or_else(|| missing("list"));
        }
        return unknown_method_callback(state, value, method, args);
    };
    match method {
        "strip" | "lstrip" | "rstrip" => {
            let (characters,): (Option<Value>,) = from_args(args)?;
            let characters = characters.as_ref().and_then(Value::as_str);
            let (left, right) = (method != "rstrip", method != "lstrip");
            Ok(Value::from(strip(text, characters, left, right)))
        }
        "split" => {
            let (separator, most, kwargs): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
            let named: Option<Value> = kwargs.get("sep")?;
            let separator = separator.or(named);
            let most = match most {
                Some(most) => Some(most),
                None => kwargs.get("maxsplit")?,
            };
            kwargs.assert_all_used()?;
            let most = most.and_then(|most| usize::try_from(most).ok());
            let separator = separator.as_ref().and_then(Value::as_str);
            split(state, text, separator, most)
        }
        "splitlines" => {
            let (keep,): (Option<bool>,) = from_args(args)?;
            Ok(lines(text, keep.unwrap_or(false)).collect())
        }
        "rsplit" => {
            let (separator, most): (&str, Option<i64>) = from_args(args)?;
            let most = most.and_then(|most| usize::try_from(most).ok());
            let mut parts: Vec<&str> = match most {
                Some(most) => text.rsplitn(most.saturating_add(1), separator).collect(),
                None => text.rsplit(separator).collect(),
            };
            state.consume_fuel(parts.len() as u64)?;
            parts.reverse();
            Ok(parts.into_iter().map(Value::from).collect())
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let parts = match (
                method,
                text.split_once(separator),
                text.rsplit_once(separator),
            ) {
                ("partition", Some((before, after)), _)
                | ("rpartition", _, Some((before, after))) => [before, separator, after],
                ("partition", ..) => [text, "", ""],
                _ => ["", "", text],
            };
            Ok(Value::from(Tuple::from(parts.map(Value::from))))
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        "index" | "rindex" => {
            let (wanted,): (&str,) = from_args(args)?;
            let found = if method == "index" {
                text.find(wanted)
            } else {
                text.rfind(wanted)
            };
            let found = found.map(|at| Value::from(text[..at].chars().count()));
            found.ok_or_else(|| missing("string"))
        }
        "format" => {
            pay_for_widths(state, text)?;
            unknown_method_callback(state, value, method, args)
        }
        "title" => Ok(Value::from(title(text))),
        "isspace" => Ok(Value::from(!text.is_empty() && text.chars().all(is_space))),
        _ => unknown_method_callback(state, value, method, args),
    }
}

/// A format asks for as many characters as its numbers say.
fn pay_for_widths(state: &State, format: &str) -> Result<(), Error> {
    let numbers = format.split(|character: char| !character.is_ascii_digit());
    for number in numbers.filter(|number| !number.is_empty()) {
        state.consume_fuel(number.parse::<u64>().unwrap_or(u64::MAX))?;
    }
    Ok(())
}

fn missing(kind: &str) -> Error {
    let detail = format!("index does not find it in the {kind}");
    Error::new(ErrorKind::InvalidOperation, detail)
}

/// Letters that follow a letter are small, the others capitals.
fn title(text: &str) -> String {
    let mut inside = false;
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if inside {
            out.extend(character.to_lowercase());
        } else {
            out.extend(character.to_uppercase());
        }
        inside = character.is_alphabetic();
    }
    out
}

fn split(
    state: &State,
    text: &str,
    separator: Option<&str>,
    most: Option<usize>,
) -> Result<Value, Error> {
    let parts: Vec<&str> = match separator {
        Some("") => {
            let detail = "split takes a separator that is not empty";
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        Some(separator) => match most {
            Some(most) => text.splitn(most.saturating_add(1), separator).collect(),
            None => text.split(separator).collect(),
        },
        None => words(text, most),
    };
    state.consume_fuel(parts.len() as u64)?;
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Parts between runs of white space, `most` cuts of them.
fn words(text: &str, most: Option<usize>) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() {
        let end = match most {
            Some(most) if parts.len() >= most => None,
            _ => rest.find(is_space),
        };
        let (part, behind) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(part);
        rest = behind.trim_start_matches(is_space);
    }
    parts
}

/// Lines as Python cuts them: at more than line feeds.
fn lines(text: &str, keep: bool) -> impl Iterator<Item = Value> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let ends = |c: char| {
            matches!(
                c,
                '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'
                    ..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
            )
        };
        let end = rest.find(ends).unwrap_or(rest.len());
        let (line, behind) = rest.split_at(end);
        let width = match behind.chars().next() {
            Some('\r') if behind.starts_with("\r\n") => 2,
            Some(character) => character.len_utf8(),
            None => 0,
        };
        rest = &behind[width..];
        let kept = if keep { width } else { 0 };
        let start = line.as_ptr() as usize - text.as_ptr() as usize;
        Some(Value::from(&text[start..start + line.len() + kept]))
    })
}
