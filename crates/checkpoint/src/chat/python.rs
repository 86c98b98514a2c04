//! Values as Python writes them, and the filters and tests that follow Python where the engine
//! does not.

use std::fmt::Write as _;

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, Value};

use super::messages::items;

/// Writes the value of an expression as `str` does.
pub(super) fn write(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    let written = match value.as_str() {
        Some(text) => out.write_str(text),
        None if value.is_undefined() => Ok(()),
        None => out.write_str(&text(state, value)?),
    };
    written.map_err(Error::from)
}

/// Adds what transformers adds to Jinja, and what Jinja does otherwise than the engine.
pub(super) fn install(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", tojson);
    environment.add_filter("trim", trim);
    environment.add_filter("string", |state: &mut State, value: &Value| {
        text(state, value)
    });
    environment.add_test("sequence", |value: &Value| {
        let kind = value.kind();
        value.is_undefined() || matches!(kind, ValueKind::Seq | ValueKind::Map | ValueKind::String)
    });
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && value.try_iter().is_ok()
    });
    environment.add_test("callable", |_: &Value| false);
    environment.add_filter("default", default);
    environment.add_filter("d", default);
    environment.add_filter("int", int);
    environment.add_filter("float", |value: &Value, otherwise: Option<Value>| {
        let read = |text: &str| text.trim().parse::<f64>().ok();
        let number = f64::try_from(value.clone()).ok();
        let number = number.or_else(|| value.as_str().and_then(read));
        number.map_or_else(|| otherwise.unwrap_or_else(|| 0.0.into()), Value::from)
    });
    environment.add_function("joiner", minijinja_contrib::globals::joiner);
}

#[allow(clippy::needless_pass_by_value)] // as the engine hands them to a filter
fn default(
    value: &Value,
    otherwise: Option<Value>,
    falsy: Option<bool>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let otherwise = match otherwise {
        Some(otherwise) => otherwise,
        None => kwargs
            .get::<Option<Value>>("default_value")?
            .unwrap_or_else(|| "".into()),
    };
    let falsy = match falsy {
        Some(falsy) => falsy,
        None => kwargs.get::<Option<bool>>("boolean")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    let missing = value.is_undefined() || (falsy && !value.is_true());
    Ok(if missing { otherwise } else { value.clone() })
}

/// What reads as neither an integer nor a number is 0 or what is given.
#[allow(clippy::cast_possible_truncation)] // towards zero is what is meant
fn int(value: &Value, otherwise: Option<Value>) -> Value {
    if value.is_integer() {
        return value.clone();
    }
    let text = value.as_str().unwrap_or_default().trim().replace('_', "");
    let integer: Option<i64> = match value.kind() {
        ValueKind::Bool => Some(i64::from(value.is_true())),
        _ => text.parse().ok(),
    };
    let number = integer.or_else(|| {
        let number = f64::try_from(value.clone()).ok();
        let number = number.or_else(|| text.parse().ok())?;
        number.is_finite().then_some(number as i64)
    });
    number.map_or_else(|| otherwise.unwrap_or_else(|| 0.into()), Value::from)
}

fn trim(state: &mut State, value: &Value, characters: Option<&str>) -> Result<String, Error> {
    let text = text(state, value)?;
    Ok(strip(&text, characters, true, true).to_owned())
}

/// A text in the making, bounded in length and in the depth of what it is made of: lists of lists
/// double with each level.
struct Bounded {
    text: String,
    most: usize,
}

/// Lists and maps inside of each other.
const DEPTH: usize = 100;

impl Bounded {
    /// As much as the fuel that is left pays for.
    fn new(state: &State) -> Self {
        let left = state.fuel_levels().map_or(0, |(_, left)| left);
        Self {
            text: String::new(),
            most: usize::try_from(left.saturating_mul(64)).unwrap_or(usize::MAX),
        }
    }

    /// Before each value that is written.
    fn check(&self, depth: usize) -> Result<(), Error> {
        if depth > DEPTH {
            let detail = "lists and maps are too deep inside of each other to be written";
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        if self.text.len() > self.most {
            return Err(Error::from(ErrorKind::OutOfFuel));
        }
        Ok(())
    }

    /// The text, paid for.
    fn finish(self, state: &State) -> Result<String, Error> {
        state.consume_fuel(self.text.len() as u64 / 64)?;
        Ok(self.text)
    }
}

/// `str(value)`.
fn text(state: &State, value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None if value.is_undefined() => Ok(String::new()),
        None => {
            let mut out = Bounded::new(state);
            repr(&mut out, value, 0)?;
            out.finish(state)
        }
    }
}

/// `repr(value)`.
fn repr(out: &mut Bounded, value: &Value, depth: usize) -> Result<(), Error> {
    out.check(depth)?;
    match value.kind() {
        ValueKind::String => repr_string(&mut out.text, value.as_str().unwrap_or_default()),
        ValueKind::Number if !value.is_integer() => {
            let number = f64::try_from(value.clone())?;
            out.text.push_str(&float(number));
        }
        ValueKind::Undefined => out.text.push_str("Undefined"),
        ValueKind::Seq | ValueKind::Iterable if value.as_object().is_some() => {
            let list = items(value);
            let (open, close) = match (value.is_tuple(), list.len()) {
                (true, 1) => ("(", ",)"),
                (true, _) => ("(", ")"),
                (false, _) => ("[", "]"),
            };
            out.text.push_str(open);
            for (index, item) in list.iter().enumerate() {
                out.text.push_str(if index == 0 { "" } else { ", " });
                repr(out, item, depth + 1)?;
            }
            out.text.push_str(close);
        }
        ValueKind::Map => {
            out.text.push('{');
            for (index, key) in items(value).iter().enumerate() {
                out.text.push_str(if index == 0 { "" } else { ", " });
                repr(out, key, depth + 1)?;
                out.text.push_str(": ");
                repr(out, &value.get_item(key).unwrap_or_default(), depth + 1)?;
            }
            out.text.push('}');
        }
        _ => {
            let _ = write!(out.text, "{value}");
        }
    }
    Ok(())
}

/// In single quotes, unless it has some and no double ones.
fn repr_string(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for character in text.chars() {
        let _ = match character {
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            '\\' => write!(out, "\\\\"),
            _ if character == quote => write!(out, "\\{character}"),
            ' '..='~' => write!(out, "{character}"),
            _ if is_printable(character) => write!(out, "{character}"),
            '\0'..='\u{ff}' => write!(out, "\\x{:02x}", u32::from(character)),
            '\u{100}'..='\u{ffff}' => write!(out, "\\u{:04x}", u32::from(character)),
            _ => write!(out, "\\U{:08x}", u32::from(character)),
        };
    }
    out.push(quote);
}

/// Behind another character, Rust escapes what Python does: what is no letter, mark, number,
/// punctuation or symbol.
fn is_printable(character: char) -> bool {
    let text: String = ['a', character].iter().collect();
    !text.escape_debug().any(|escaped| escaped == '{')
}

/// The shortest digits that read back as the number, as Python lays them out.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        return format!("{number:?}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// `json.dumps` with `ensure_ascii=False` unless asked for.
#[allow(clippy::needless_pass_by_value)] // as the engine hands it to a filter
fn tojson(
    state: &mut State,
    value: &Value,
    ascii: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let indent: Option<Value> = kwargs.get("indent")?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match indent.as_str() {
            Some(text) => text.to_owned(),
            None => " ".repeat(usize::try_from(indent)?.min(64)),
        }),
    };
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    let ascii = match ascii {
        Some(ascii) => ascii,
        None => kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    let sort = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    kwargs.assert_all_used()?;
    let (comma, colon) = match separators.as_deref() {
        Some([comma, colon]) => (comma.clone(), colon.clone()),
        Some(_) => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                "tojson takes two separators",
            ));
        }
        None if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        None => (", ".to_owned(), ": ".to_owned()),
    };
    let json = Json {
        indent,
        comma,
        colon,
        ascii,
        sort,
    };
    let mut out = Bounded::new(state);
    json.write(&mut out, value, 0)?;
    out.finish(state)
}

/// How `json.dumps` lays out a value.
struct Json {
    indent: Option<String>,
    comma: String,
    colon: String,
    ascii: bool,
    sort: bool,
}

impl Json {
    fn write(&self, out: &mut Bounded, value: &Value, depth: usize) -> Result<(), Error> {
        out.check(depth)?;
        match value.kind() {
            ValueKind::None => out.text.push_str("null"),
            ValueKind::Bool => out
                .text
                .push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.text.push_str(&value.to_string()),
            ValueKind::Number => {
                let number = float(f64::try_from(value.clone())?);
                out.text.push_str(match number.as_str() {
                    "nan" => "NaN",
                    "inf" => "Infinity",
                    "-inf" => "-Infinity",
                    number => number,
                });
            }
            ValueKind::String => self.string(&mut out.text, value.as_str().unwrap_or_default()),
            ValueKind::Seq => {
                let list = items(value);
                self.group(out, ('[', ']'), &list, depth, |out, item| {
                    self.write(out, item, depth + 1)
                })?;
            }
            ValueKind::Map => {
                let mut keys = items(value);
                if self.sort {
                    keys.sort();
                }
                self.group(out, ('{', '}'), &keys, depth, |out, key| {
                    let quote = if key.kind() == ValueKind::String {
                        ""
                    } else {
                        "\""
                    };
                    out.text.push_str(quote);
                    self.write(out, key, depth)?;
                    out.text.push_str(quote);
                    out.text.push_str(&self.colon);
                    self.write(out, &value.get_item(key)?, depth + 1)
                })?;
            }
            kind => {
                let detail = format!("{kind} cannot be written as JSON");
                return Err(Error::new(ErrorKind::BadSerialization, detail));
            }
        }
        Ok(())
    }

    fn group(
        &self,
        out: &mut Bounded,
        (open, close): (char, char),
        list: &[Value],
        depth: usize,
        mut write: impl FnMut(&mut Bounded, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        out.text.push(open);
        for (index, item) in list.iter().enumerate() {
            out.text.push_str(if index == 0 { "" } else { &self.comma });
            self.new_line(out, depth + 1);
            write(out, item)?;
        }
        if !list.is_empty() {
            self.new_line(out, depth);
        }
        out.text.push(close);
        Ok(())
    }

    fn new_line(&self, out: &mut Bounded, depth: usize) {
        if let Some(indent) = &self.indent {
            out.text.push('\n');
            out.text.push_str(&indent.repeat(depth));
        }
    }

    fn string(&self, out: &mut String, text: &str) {
        out.push('"');
        for character in text.chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                '\0'..='\x1f' => self.escape(out, character),
                '\x7f'.. if self.ascii && character != '\x7f' => self.escape(out, character),
                _ => out.push(character),
            }
        }
        out.push('"');
    }

    #[allow(clippy::unused_self)] // beside `string`, which it is a part of
    fn escape(&self, out: &mut String, character: char) {
        for unit in character.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    }
}

/// `str.isspace` of one character.
pub(super) fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\x1c'..='\x1f')
}

/// `str.strip`, `lstrip` and `rstrip`.
pub(super) fn strip<'a>(
    mut text: &'a str,
    characters: Option<&str>,
    left: bool,
    right: bool,
) -> &'a str {
    let goes = |character: char| match characters {
        Some(characters) => characters.contains(character),
        None => is_space(character),
    };
    if left {
        text = text.trim_start_matches(goes);
    }
    if right {
        text = text.trim_end_matches(goes);
    }
    text
}
