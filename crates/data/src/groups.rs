//! The groups that documents belong to.

use std::collections::HashMap;

use crate::error::DataError;
use crate::source::Source;

/// Groups of a dataset.
const MAX_GROUPS: usize = 1000;

/// The names of groups, numbered as they are met.
#[derive(Debug, Default)]
pub(crate) struct Groups(HashMap<String, u32>);

impl Groups {
    /// The number of a group of `source`.
    pub(crate) fn number(&mut self, name: &str, source: &Source) -> Result<u32, DataError> {
        if let Some(number) = self.0.get(name) {
            return Ok(*number);
        }
        if self.0.len() == MAX_GROUPS {
            return Err(DataError::TooManyGroups {
                file: source.label(),
                field: source.group_by.clone().unwrap_or_default(),
                limit: MAX_GROUPS,
            });
        }
        let number = u32::try_from(self.0.len()).expect("few groups");
        self.0.insert(name.to_owned(), number);
        Ok(number)
    }

    /// The names in their order, each with the number it had.
    pub(crate) fn sorted(self) -> Vec<(String, u32)> {
        let mut names: Vec<_> = self.0.into_iter().collect();
        names.sort_unstable();
        names
    }
}
