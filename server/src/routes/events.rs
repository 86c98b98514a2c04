//! What happens to a job, as it happens.

use std::convert::Infallible;
use std::time::Duration;

use assay_api::JobEvent;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt, stream};

use super::no_such_job;
use crate::access::Caller;
use crate::app::AppState;
use crate::error::ApiError;
use crate::events::{Follower, Mark};
use crate::extract::JobPath;
use crate::problems::OfEvents;

/// The header by which a client says what it has seen last.
const LAST_EVENT_ID: &str = "last-event-id";

/// Between two comments that keep an idle connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Follow a job
///
/// Server-sent events: `state` with each change of its state, `dataset` with the numbers of each
/// dataset that has ended, `progress` at most once a second. The stream ends with the job. A client
/// that comes again with `Last-Event-ID` (browsers do so by themselves) gets every `state` and
/// `dataset` that it has not seen, and none twice, whatever was restarted meanwhile; after the last
/// one it gets 204, which keeps browsers from coming again.
#[utoipa::path(
    get,
    path = "/jobs/{id}/events",
    operation_id = "follow_job",
    tag = "jobs",
    params(
        ("id" = Uuid, Path, description = "Id of the job."),
        (
            "Last-Event-ID" = Option<String>, Header,
            description = "`id` of the last event that was seen."
        ),
    ),
    responses(
        (
            status = 200, description = "The events from there on, each with a `JobEvent` as data.",
            content_type = "text/event-stream", body = JobEvent
        ),
        (status = 204, description = "The last event was seen already."),
        OfEvents,
    ),
)]
pub(crate) async fn follow(
    State(state): State<AppState>,
    caller: Caller,
    JobPath(id): JobPath,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let seen = Mark::of(headers.get(LAST_EVENT_ID))?;
    let job = caller
        .ledger
        .job(id)
        .await?
        .ok_or_else(|| no_such_job(id))?;
    let follower = Follower::new(caller.ledger.clone(), job.id, seen);
    if job.state.is_final() && caller.ledger.events(id, seen.number).await?.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let events = sent(follower).take_until(state.stop.cancelled_owned());
    let sse = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    Ok(sse.into_response())
}

fn sent(follower: Follower) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(follower, |mut follower| async move {
        let (mark, event) = follower.next().await?;
        let sent = Event::default()
            .id(mark.to_string())
            .event(event.name())
            .json_data(&event)
            .expect("an event is plain data without line breaks");
        Some((Ok(sent), follower))
    })
}
