//! Methods on the command line and in tables.

use assay_api::{Bos, Convention, Method, MethodRequest, Tail};
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Parses `CONVENTION[,KEY=VALUE]..`, or the object of a request as JSON.
pub(crate) fn method(text: &str) -> Result<MethodRequest, String> {
    let value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| error.to_string())?
    } else {
        object(text)?
    };
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn object(text: &str) -> Result<Value, String> {
    let mut object = Map::new();
    for (index, part) in parts(text)?.iter().enumerate() {
        let (key, value) = match part.split_once('=') {
            Some(pair) => pair,
            None if index == 0 => ("convention", part.as_str()),
            None => return Err(format!("{part:?} is not KEY=VALUE, such as window=1024")),
        };
        let value = match key {
            "window" | "stride" => value
                .parse::<u32>()
                .map(Value::from)
                .map_err(|_| format!("{key} is a number of tokens, not {value:?}"))?,
            _ => Value::from(value),
        };
        if object.insert(key.to_owned(), value).is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    Ok(Value::Object(object))
}

/// The parts between commas. `\n`, `\t`, `\,` and `\\` are a line feed, a tab, a comma and a
/// backslash.
fn parts(text: &str) -> Result<Vec<String>, String> {
    let mut parts = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let character = match character {
            ',' => {
                parts.push(String::new());
                continue;
            }
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some(same @ (',' | '\\')) => same,
                _ => return Err(r"after a backslash comes n, t, a comma or another one".to_owned()),
            },
            other => other,
        };
        parts.last_mut().expect("never empty").push(character);
    }
    Ok(parts)
}

/// One of a job's methods, as an option names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// By its index.
    Index(usize),
    /// By its convention, if it is the only one that has it.
    Convention(Convention),
}

/// Parses an index from 0 or the name of a convention.
pub(crate) fn which(text: &str) -> Result<Which, String> {
    if let Ok(index) = text.parse() {
        return Ok(Which::Index(index));
    }
    serde_json::from_value(Value::from(text))
        .map(Which::Convention)
        .map_err(|_| {
            "a method is an index from 0, or its convention: rolling, blocks, strided or llamacpp"
                .to_owned()
        })
}

impl Which {
    /// The index among the methods of a job. Whether it has so many is for the server to say.
    pub(crate) fn index(self, methods: &[Method]) -> Result<usize, Failure> {
        let convention = match self {
            Self::Index(index) => return Ok(index),
            Self::Convention(convention) => convention,
        };
        let all = methods.iter().enumerate();
        let found: Vec<_> = all
            .clone()
            .filter(|(_, method)| method.convention == convention)
            .collect();
        if let [(index, _)] = found.as_slice() {
            return Ok(*index);
        }
        let (how_many, listed) = if found.is_empty() {
            ("none", all.collect())
        } else {
            ("more than one", found)
        };
        let listed: Vec<_> = listed
            .iter()
            .map(|(index, method)| format!("{index}: {}", describe(method)))
            .collect();
        Err(Failure::Usage(format!(
            "{how_many} of the job's methods is {}; give --method an index of {}",
            convention.as_str(),
            listed.join("; ")
        )))
    }
}

/// The method in a few words, for a column.
pub(crate) fn label(method: &Method) -> String {
    let stride = method.stride.map(|stride| format!("/{stride}"));
    let mut text = format!(
        "{} {}{}",
        method.convention.as_str(),
        method.window,
        stride.unwrap_or_default()
    );
    // The defaults go without saying.
    for (option, default) in [
        (tail(method), "tail drop"),
        (bos(method), "bos auto"),
        (join(method), r#"join "\n\n""#),
    ] {
        if let Some(option) = option.filter(|option| option != default) {
            text.push(' ');
            text.push_str(&option);
        }
    }
    text
}

/// The method with all its options, for a sentence.
pub(crate) fn describe(method: &Method) -> String {
    let parts = [
        Some(method.convention.as_str().to_owned()),
        Some(format!("window {}", method.window)),
        method.stride.map(|stride| format!("stride {stride}")),
        join(method),
        bos(method),
        tail(method),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn join(method: &Method) -> Option<String> {
    method.join.as_ref().map(|join| format!("join {join:?}"))
}

fn bos(method: &Method) -> Option<String> {
    let word = match method.bos? {
        Bos::Auto => "auto",
        Bos::Always => "always",
        Bos::Never => "never",
    };
    Some(format!("bos {word}"))
}

fn tail(method: &Method) -> Option<String> {
    let word = match method.tail? {
        Tail::Drop => "drop",
        Tail::Score => "score",
    };
    Some(format!("tail {word}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_taken() {
        let parsed = method(r"strided,window=1024,stride=256,join=\n\,,bos=never").unwrap();
        assert_eq!(
            parsed,
            MethodRequest {
                convention: Convention::Strided,
                window: Some(1024),
                stride: Some(256),
                join: Some("\n,".to_owned()),
                bos: Some(Bos::Never),
                tail: None,
            }
        );
        let parsed = method("blocks,tail=score").unwrap();
        assert_eq!(parsed.tail, Some(Tail::Score));
        let json = r#"{"convention": "llamacpp", "window": 512}"#;
        assert_eq!(method(json), method("llamacpp,window=512"));
        assert_eq!(method("window=8").unwrap().convention, Convention::Rolling);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("rollin", "rollin"),
            ("rolling,widow=8", "widow"),
            ("rolling,window=many", "many"),
            ("rolling,8", "KEY=VALUE"),
            ("rolling,window=8,window=9", "twice"),
            (r"blocks,join=\x", "backslash"),
            ("{", "EOF"),
        ] {
            let error = method(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn a_method_is_named_by_index_or_convention() {
        let blocks = Method {
            convention: Convention::Blocks,
            ..Method::rolling(8)
        };
        let methods = [Method::rolling(8), blocks, Method::rolling(16)];
        let index = |text: &str| which(text).unwrap().index(&methods);
        assert_eq!(index("2").unwrap(), 2);
        assert_eq!(index("blocks").unwrap(), 1);
        let error = index("rolling").unwrap_err().to_string();
        assert!(error.contains("more than one"), "{error}");
        assert!(error.contains("2: rolling, window 16"), "{error}");
        let error = index("strided").unwrap_err().to_string();
        assert!(error.contains("none of the job's methods"), "{error}");
        assert!(which("rollin").unwrap_err().contains("llamacpp"));
    }

    #[test]
    fn labels_are_short_and_leave_out_defaults() {
        let mut method = Method::rolling(2048);
        assert_eq!(label(&method), "rolling 2048");
        assert_eq!(describe(&method), "rolling, window 2048");
        method = Method {
            convention: Convention::Strided,
            stride: Some(512),
            join: Some("\n\n".to_owned()),
            bos: Some(Bos::Auto),
            ..method
        };
        assert_eq!(label(&method), "strided 2048/512");
        method.bos = Some(Bos::Never);
        method.join = Some(String::new());
        assert_eq!(label(&method), r#"strided 2048/512 bos never join """#);
        assert_eq!(
            describe(&method),
            r#"strided, window 2048, stride 512, join "", bos never"#
        );
    }
}
