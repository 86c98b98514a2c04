//! The two text formats.

use std::fmt;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// That of Prometheus, version 0.0.4.
    Prometheus,
    /// OpenMetrics, version 1.0.0.
    OpenMetrics,
}

impl Format {
    /// OpenMetrics for those who accept it.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let mut accepted = headers.get_all(ACCEPT).iter();
        if accepted.any(|value| {
            let value = value.to_str().unwrap_or_default();
            value.contains("application/openmetrics-text")
        }) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The media type.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// All that is registered.
    pub(super) fn write(self, registry: &Registry) -> Result<String, fmt::Error> {
        let mut written = String::new();
        match self {
            Self::Prometheus => prometheus_text::encode(&mut written, registry)?,
            Self::OpenMetrics => text::encode(&mut written, registry)?,
        }
        Ok(written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_metrics_are_for_those_who_ask() {
        let accepted = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, value.parse().unwrap());
            Format::accepted(&headers)
        };
        assert_eq!(Format::accepted(&HeaderMap::new()), Format::Prometheus);
        assert_eq!(accepted("*/*"), Format::Prometheus);
        // As Prometheus 3 asks.
        assert_eq!(
            accepted(
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
            ),
            Format::OpenMetrics
        );
    }
}
