//! Typed access to the fields of a configuration.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::CheckpointError;

/// The fields of one JSON object; null counts as absent, as in transformers.
pub(crate) struct Fields<'a> {
    pub(crate) file: &'a str,
    /// Path of the object the fields are in; empty at the top.
    pub(crate) within: String,
    pub(crate) map: &'a Map<String, Value>,
    /// What fields are called in the file, where that is not their name.
    pub(crate) alias: &'a BTreeMap<String, String>,
}

impl<'a> Fields<'a> {
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// What the field is called in errors.
    pub(crate) fn path(&self, name: &str) -> String {
        let path = match self.within.as_str() {
            "" => name.to_owned(),
            within => format!("{within}.{name}"),
        };
        self.alias.get(&path).cloned().unwrap_or(path)
    }

    /// Whether the field is there, be it null.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.map.contains_key(name)
    }

    pub(crate) fn wrong(&self, name: &str, detail: impl Into<String>) -> CheckpointError {
        CheckpointError::configuration(self.file, &self.path(name), detail)
    }

    pub(crate) fn unsupported(
        &self,
        name: &str,
        value: impl Into<String>,
        remedy: &str,
    ) -> CheckpointError {
        CheckpointError::unsupported(self.file, &self.path(name), value, remedy)
    }

    pub(crate) fn typed<T>(
        &self,
        name: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let typed = read(value).ok_or_else(|| {
            // The value may be a whole document.
            let text: String = value.to_string().chars().take(40).collect();
            self.wrong(name, format!("is {text}, but it must be {wanted}"))
        })?;
        Ok(Some(typed))
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, CheckpointError> {
        self.typed(name, "a string", Value::as_str)
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, CheckpointError> {
        self.typed(name, "true or false", Value::as_bool)
    }

    pub(crate) fn positive(&self, name: &str) -> Result<Option<f64>, CheckpointError> {
        self.typed(name, "a positive number", |value| {
            value
                .as_f64()
                .filter(|number| number.is_finite() && *number > 0.0)
        })
    }

    pub(crate) fn size(&self, name: &str, most: u64) -> Result<Option<usize>, CheckpointError> {
        self.typed(name, &format!("an integer from 1 to {most}"), |value| {
            let number = value
                .as_u64()
                .filter(|number| (1..=most).contains(number))?;
            usize::try_from(number).ok()
        })
    }

    pub(crate) fn required_size(&self, name: &str, most: u64) -> Result<usize, CheckpointError> {
        self.size(name, most)?
            .ok_or_else(|| self.wrong(name, "is missing"))
    }

    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, CheckpointError> {
        let map = self.typed(name, "an object", Value::as_object)?;
        Ok(map.map(|map| Fields {
            file: self.file,
            within: self.path(name),
            map,
            alias: self.alias,
        }))
    }

    pub(crate) fn list<T>(
        &self,
        name: &str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, CheckpointError> {
        self.typed(name, &format!("a list of {wanted}"), |value| {
            value.as_array()?.iter().map(&read).collect()
        })
    }

    /// Refuses a flag that would change the computation.
    pub(crate) fn refuse(&self, name: &str, remedy: &str) -> Result<(), CheckpointError> {
        match self.flag(name)? {
            Some(true) => Err(self.unsupported(name, "true", remedy)),
            _ => Ok(()),
        }
    }
}
