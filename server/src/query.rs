//! Query parameters and the pages of lists.

use std::fmt::Display;
use std::str::FromStr;

use assay_api::{ErrorCode, JobState, Page};
use axum::extract::{FromRequestParts, Query as Pairs};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::value::{Error as ValueError, MapDeserializer, StrDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error, IntoDeserializer};

use crate::error::ApiError;
use crate::extract::field;

/// The query of the request as `T`, whose fields all deserialize from a string.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let invalid = |field: String, detail: String| {
            ApiError::of_field(ErrorCode::InvalidRequest, field, detail)
        };
        let Pairs(pairs) = Pairs::<Vec<(String, String)>>::try_from_uri(&parts.uri)
            .map_err(|error| invalid("query".to_owned(), error.body_text()))?;
        let pairs = MapDeserializer::<_, ValueError>::new(pairs.into_iter());
        serde_path_to_error::deserialize(pairs)
            .map(Query)
            .map_err(|error| {
                let detail = error.inner().to_string();
                invalid(field(&error, &detail), detail)
            })
    }
}

/// Rows of a page: 1 to `MAX`, 100 by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit<const MAX: u32>(u32);

impl<const MAX: u32> Default for Limit<MAX> {
    fn default() -> Self {
        Self(100)
    }
}

impl<const MAX: u32> Limit<MAX> {
    /// Rows of the page.
    pub(crate) fn size(self) -> u32 {
        self.0
    }

    /// Rows to ask the ledger for: one more than the page holds tells whether there is a next.
    pub(crate) fn rows(self) -> u32 {
        self.0 + 1
    }

    /// The page of `rows`, asked for with [`Self::rows`]. `cursor` is that of the page after a row.
    pub(crate) fn page<T, C: Display>(self, mut rows: Vec<T>, cursor: impl Fn(&T) -> C) -> Page<T> {
        let size = self.0 as usize;
        let more = rows.len() > size;
        rows.truncate(size);
        let next = rows
            .last()
            .filter(|_| more)
            .map(|row| cursor(row).to_string());
        Page { items: rows, next }
    }
}

impl<'de, const MAX: u32> Deserialize<'de> for Limit<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.parse() {
            Ok(limit) if (1..=MAX).contains(&limit) => Ok(Self(limit)),
            _ => Err(D::Error::custom(format_args!(
                "takes a number from 1 to {MAX}, not {text:?}"
            ))),
        }
    }
}

/// A parameter that may be left out: `#[serde(default, deserialize_with = "present")]`. Strings
/// deserialize to what is there, not to an `Option`.
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// The index of something, or the cursor of a list whose rows have one: that of the page's first
/// row. The ledger's indices are below 2^31.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index(pub(crate) u32);

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|_| D::Error::custom(format_args!("takes a number from 0 on, not {text:?}")))
    }
}

impl FromStr for Index {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<i32>()?;
        text.parse().map(Self)
    }
}

/// Where a page begins, as `next` of the page before gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor<T>(pub(crate) T);

impl<'de, T: FromStr> Deserialize<'de> for Cursor<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|_| {
            D::Error::custom(format_args!(
                "{text:?} is not a cursor of this list; give the `next` of the page before, or \
                 nothing for the first page"
            ))
        })
    }
}

/// A tag of a job, as `key:value`.
#[derive(Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Tag(pub(crate) String, pub(crate) String);

impl TryFrom<String> for Tag {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split_once(':') {
            Some((key, value)) if !key.is_empty() && !text.contains('\0') => {
                Ok(Self(key.to_owned(), value.to_owned()))
            }
            _ => Err(format!("takes `key:value`, not {text:?}")),
        }
    }
}

/// States of jobs, with commas between them.
#[derive(Debug, PartialEq)]
pub(crate) struct States(pub(crate) Vec<JobState>);

impl<'de> Deserialize<'de> for States {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let states = text.split(',').map(|state| {
            let state: StrDeserializer<'_, D::Error> = state.into_deserializer();
            JobState::deserialize(state)
        });
        states.collect::<Result<_, _>>().map(Self)
    }
}

/// A text to look for.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Text(pub(crate) String);

impl Text {
    const MAX: usize = 200;
}

impl TryFrom<String> for Text {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if (1..=Self::MAX).contains(&text.len()) && !text.contains('\0') {
            return Ok(Self(text));
        }
        Err(format!("takes 1 to {} bytes without NUL", Self::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Parameters {
        #[serde(default, deserialize_with = "present")]
        state: Option<States>,
        #[serde(default, deserialize_with = "present")]
        q: Option<Text>,
        #[serde(default, deserialize_with = "present")]
        cursor: Option<Cursor<Index>>,
        #[serde(default)]
        limit: Limit<1000>,
    }

    async fn parse(uri: &str) -> Result<Parameters, (String, String)> {
        let (mut parts, ()) = Request::get(uri).body(()).unwrap().into_parts();
        match Query::from_request_parts(&mut parts, &()).await {
            Ok(Query(parameters)) => Ok(parameters),
            Err(ApiError::Problem(problem)) => {
                assert_eq!(problem.code, ErrorCode::InvalidRequest);
                let error = problem.errors[0].clone();
                Err((error.field, error.detail))
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[tokio::test]
    async fn parameters_are_typed_and_may_be_left_out() {
        let nothing = Parameters {
            state: None,
            q: None,
            cursor: None,
            limit: Limit(100),
        };
        assert_eq!(parse("/").await.unwrap(), nothing);
        let all = Parameters {
            state: Some(States(vec![JobState::Running, JobState::Queued])),
            q: Some(Text("50%".to_owned())),
            cursor: Some(Cursor(Index(7))),
            limit: Limit(1000),
        };
        assert_eq!(
            parse("/?state=running,queued&q=50%25&cursor=7&limit=1000")
                .await
                .unwrap(),
            all
        );
    }

    #[tokio::test]
    async fn wrong_parameters_are_named() {
        for (query, field, detail) in [
            ("limit=0", "limit", "from 1 to 1000"),
            ("limit=1001", "limit", "from 1 to 1000"),
            ("limit=-1", "limit", "from 1 to 1000"),
            ("limit=", "limit", "from 1 to 1000"),
            ("limit=1&limit=2", "limit", "duplicate"),
            ("cursor=x", "cursor", "`next`"),
            ("cursor=-1", "cursor", "`next`"),
            ("cursor=2147483648", "cursor", "`next`"),
            ("state=done", "state", "`succeeded`"),
            ("state=", "state", "`succeeded`"),
            ("state=failed,", "state", "`succeeded`"),
            ("q=", "q", "1 to 200"),
            ("q=%00", "q", "1 to 200"),
            ("page=2", "page", "`cursor`"),
        ] {
            let (at, text) = parse(&format!("/?{query}")).await.unwrap_err();
            assert_eq!(at, field, "{query}: {text}");
            assert!(text.contains(detail), "{query}: {text}");
        }
    }

    #[test]
    fn a_full_page_has_a_next_one_only_if_there_are_more_rows() {
        let limit = Limit::<1000>(2);
        assert_eq!(limit.rows(), 3);
        let page = limit.page(vec![1, 2, 3], |last| *last);
        assert_eq!((page.items, page.next.as_deref()), (vec![1, 2], Some("2")));
        let page = limit.page(vec![1, 2], |last| *last);
        assert_eq!((page.items, page.next), (vec![1, 2], None));
        let page = limit.page(Vec::<u32>::new(), |last| *last);
        assert_eq!(page.next, None);
    }
}
