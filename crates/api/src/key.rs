//! Keys, and the log of who wrote what.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a key may do. Each scope has those before it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Look at everything of the project and change nothing.
    Read,
    /// Also post and cancel jobs, upload and delete datasets.
    Submit,
    /// Also make and revoke keys of the project, and read the audit log.
    Admin,
}

impl Scope {
    /// All scopes, the smallest first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Submit, Self::Admin];

    /// The scope as it travels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| format!("{text:?} is not a scope; those are read, submit and admin"))
    }
}

/// A key that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// Who or what it is for, 1 to 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// When it ends; null or left out is never.
    #[serde(default)]
    pub expires_at: Option<DateTime<Utc>>,
}

/// A key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Key {
    /// The part of the key that is no secret.
    pub id: String,
    /// Who or what it is for.
    pub name: String,
    /// What it may do.
    pub scope: Scope,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it ends, if it does.
    pub expires_at: Option<DateTime<Utc>>,
    /// When it was used last, to the minute.
    pub last_used_at: Option<DateTime<Utc>>,
    /// When it was revoked, if it was.
    pub revoked_at: Option<DateTime<Utc>>,
}

/// A new key. `Debug` does not show the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedKey {
    /// All that is known of it from now on.
    pub key: Key,
    /// The key itself, for the header `Authorization: Bearer`. It is shown this once.
    pub secret: String,
}

impl fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CreatedKey")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Its number; later writes have higher ones.
    pub number: i64,
    /// When it was made.
    pub at: DateTime<Utc>,
    /// Id of the key that made it; null for the command line on the server's machine, and for a
    /// service without keys.
    pub key: Option<String>,
    /// Id of the operation, such as `create_job`.
    pub action: String,
    /// The job, the upload or the key that it was made of.
    pub subject: String,
    /// HTTP status of the answer; null for the command line.
    pub status: Option<u16>,
    /// `x-request-id` of the request; null for the command line.
    pub request_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_grow_and_travel_by_their_names() {
        assert!(Scope::Read < Scope::Submit && Scope::Submit < Scope::Admin);
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse(), Ok(scope));
            assert_eq!(serde_json::to_value(scope).unwrap(), scope.as_str());
        }
        assert!("write".parse::<Scope>().unwrap_err().contains("submit"));
    }
}
