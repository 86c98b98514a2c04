//! One finding of a `doctor`.

use serde::{Deserialize, Serialize};

/// One check of `assay-server doctor` or `assay-worker doctor`; with `--json` each is a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// What was looked at, such as `database`.
    pub check: String,
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was found.
    pub detail: String,
    /// What to do, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    /// A check that is passed.
    pub fn passed(check: &str, detail: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            ok: true,
            detail: detail.into(),
            remedy: None,
        }
    }

    /// A check that is not.
    pub fn failed(check: &str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            ok: false,
            detail: detail.into(),
            remedy: Some(remedy.into()),
        }
    }
}

impl std::fmt::Display for Check {
    /// A line for people.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verdict = if self.ok { "ok  " } else { "FAIL" };
        write!(f, "{verdict}  {}: {}", self.check, self.detail)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}
