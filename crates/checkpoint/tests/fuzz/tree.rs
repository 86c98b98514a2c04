//! JSON that need not be JSON: objects may have a key twice, and anything may stand for a value.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    /// Written as it is.
    Raw(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

/// A step down: to the value of a key, or to a child by its number, counted around.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Step {
    Index(usize),
    Key(String),
}

impl From<&Value> for Tree {
    fn from(value: &Value) -> Self {
        match value {
            Value::Array(values) => Self::List(values.iter().map(Self::from).collect()),
            Value::Object(map) => Self::Object(
                map.iter()
                    .map(|(key, value)| (key.clone(), Self::from(value)))
                    .collect(),
            ),
            other => Self::Raw(other.to_string()),
        }
    }
}

impl Tree {
    /// The tree of JSON bytes; nothing if they are none.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        Some(Self::from(&value))
    }

    /// The tree of a text that may be JSON.
    pub(crate) fn of(text: &str) -> Self {
        Self::parse(text.as_bytes()).unwrap_or_else(|| Self::Raw(text.to_owned()))
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::Raw(Value::from(text).to_string())
    }

    pub(crate) fn number(number: impl Display) -> Self {
        Self::Raw(format!("{number}"))
    }

    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Self::Raw(raw) => out.push_str(raw),
            Self::List(values) => {
                out.push('[');
                for (index, value) in values.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    value.write(out);
                }
                out.push(']');
            }
            Self::Object(pairs) => {
                out.push('{');
                for (index, (key, value)) in pairs.iter().enumerate() {
                    out.push_str(if index > 0 { "," } else { "" });
                    out.push_str(&Value::from(key.as_str()).to_string());
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
        }
    }

    pub(crate) fn printed(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// The children of a list or an object.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match self {
            Self::Raw(_) => Vec::new(),
            Self::List(values) => values.iter().collect(),
            Self::Object(pairs) => pairs.iter().map(|(_, value)| value).collect(),
        }
    }

    /// The value at the end of a path, as far as it leads.
    pub(crate) fn at(&mut self, path: &[Step]) -> &mut Self {
        let Some((step, rest)) = path.split_first() else {
            return self;
        };
        match self.place(step) {
            None => self,
            Some(index) => match self {
                Self::Object(pairs) => pairs[index].1.at(rest),
                Self::List(values) => values[index].at(rest),
                Self::Raw(_) => self,
            },
        }
    }

    /// The number of the child that a step leads to. A key that is not there is added.
    fn place(&mut self, step: &Step) -> Option<usize> {
        match (self, step) {
            (Self::Object(pairs), Step::Key(key)) => {
                let found = pairs.iter().position(|(name, _)| name == key);
                Some(found.unwrap_or_else(|| {
                    pairs.push((key.clone(), Self::Raw("null".into())));
                    pairs.len() - 1
                }))
            }
            (Self::Object(pairs), Step::Index(index)) if !pairs.is_empty() => {
                Some(index % pairs.len())
            }
            (Self::List(values), Step::Index(index)) if !values.is_empty() => {
                Some(index % values.len())
            }
            _ => None,
        }
    }

    /// Takes the child at the end of a path away, or puts it there more than once.
    pub(crate) fn repeat(&mut self, path: &[Step], times: usize) {
        let Some((last, before)) = path.split_last() else {
            return;
        };
        let parent = self.at(before);
        let Some(index) = parent.place(last) else {
            return;
        };
        match parent {
            Self::List(values) => {
                let child = values[index].clone();
                values.splice(index..=index, vec![child; times]);
            }
            Self::Object(pairs) => {
                let child = pairs[index].clone();
                pairs.splice(index..=index, vec![child; times]);
            }
            Self::Raw(_) => {}
        }
    }
}
