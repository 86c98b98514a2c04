//! How many requests there are, and how long they take.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The route of requests that have none.
pub(crate) const UNMATCHED: &str = "unmatched";

/// Upper bounds in seconds. Answers from the ledger take milliseconds; the last bound is that of
/// [`crate::edge::TIMEOUT`].
const BOUNDS: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0,
];

/// Method, route, class of the status. All of them are few, whatever is asked for.
type Labels = [(&'static str, Cow<'static, str>); 3];

/// Counts and times requests. Clones are one.
#[derive(Clone)]
pub(crate) struct Requests {
    durations: Family<Labels, Histogram>,
    in_flight: Gauge,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            durations: Family::<Labels, Histogram>::new_with_constructor(|| Histogram::new(BOUNDS)),
            in_flight: Gauge::default(),
        }
    }
}

/// A request that is being answered, until it is dropped: its client may go away before.
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Requests {
    /// A request has come.
    pub(crate) fn begin(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// The head of its answer is ready. The body may take longer, where it is a file.
    pub(crate) fn answered(
        &self,
        method: &Method,
        route: String,
        status: StatusCode,
        took: Duration,
    ) {
        let labels = [
            ("method", name_of(method).into()),
            ("route", route.into()),
            ("status", class_of(status).into()),
        ];
        self.durations
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// Adds what is known by now.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "assay_http_request_duration_seconds",
            "Time until the head of an answer was ready, by route and class of its status",
            self.durations.clone(),
        );
        registry.register(
            "assay_http_requests_in_flight",
            "Requests whose answer has not begun, this one included",
            self.in_flight.clone(),
        );
    }
}

/// The name of a method. Callers may invent some, which would be a label each.
fn name_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "other",
    }
}

fn class_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        100..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_given_up_is_in_flight_no_more() {
        let requests = Requests::default();
        let (first, second) = (requests.begin(), requests.begin());
        assert_eq!(requests.in_flight.get(), 2);
        drop(first);
        assert_eq!(requests.clone().in_flight.get(), 1);
        drop(second);
        assert_eq!(requests.in_flight.get(), 0);
    }
}
