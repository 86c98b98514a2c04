//! Follows a job to its end.

use std::io::IsTerminal;
use std::time::Duration;

use assay_api::{Job, JobState};
use indicatif::{DecimalBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{Instant, sleep};

use crate::client::{Answer, Client, ClientError, Retry};
use crate::numbers::{duration, grouped, rate};

const POLL: Duration = Duration::from_millis(500);
/// Looks that find a job waiting for workers before it is said: one may just be starting.
const WAITING_LOOKS: u32 = 4;
/// Between two lines of the same state where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress of a job on stderr until it ends: a bar on a terminal, else lines.
pub(crate) async fn follow(client: &Client, job: Job) -> Result<Answer<Job>, ClientError> {
    let path = format!("/jobs/{}", job.id);
    let mut display = Display::new();
    let client = &display.client(client);
    display.show(&job);
    let mut looks = 0;
    loop {
        let answer: Answer<Job> = client.get(&path, Retry::Always).await?;
        display.show(&answer.value);
        if let Some(waiting) = &answer.value.waiting {
            looks += 1;
            if looks == WAITING_LOOKS {
                client.say(&format!("the job waits: {}", waiting.detail));
            }
        }
        if answer.value.state.is_final() {
            return Ok(answer);
        }
        sleep(POLL).await;
    }
}

/// The bar of a transfer, on stderr if that is a terminal.
pub(crate) fn transfer_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(
        "[{wide_bar}] {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left",
    );
    bar.set_style(
        style
            .expect("the template is a constant")
            .progress_chars("=> "),
    );
    bar
}

enum Display {
    Bar { bar: ProgressBar, last: String },
    Lines { last: Option<(JobState, Instant)> },
}

impl Display {
    fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Lines { last: None };
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{prefix:<9} [{wide_bar}] {percent:>3} %  {msg}");
        bar.set_style(
            style
                .expect("the template is a constant")
                .progress_chars("=> "),
        );
        Self::Bar {
            bar,
            last: JobState::Queued.as_str().to_owned(),
        }
    }

    /// A client whose notices do not tear the bar.
    fn client(&self, client: &Client) -> Client {
        match self {
            Self::Bar { bar, .. } => {
                let bar = bar.clone();
                client.with_notice(move |text| bar.println(format!("assay: {text}")))
            }
            Self::Lines { .. } => client.clone(),
        }
    }

    fn show(&mut self, job: &Job) {
        match self {
            Self::Bar { bar, last } => {
                *last = line(job);
                bar.set_prefix(job.state.as_str());
                bar.set_message(counts(job));
                let (done, of) = match job.progress.download {
                    Some(download) => (download.bytes, download.total_bytes),
                    None => (
                        job.progress.scored_tokens,
                        job.progress.planned_tokens.unwrap_or(1),
                    ),
                };
                bar.set_length(of.max(1));
                bar.set_position(done);
            }
            Self::Lines { last } => {
                let now = Instant::now();
                let due = last.is_none_or(|(state, at)| {
                    state != job.state || now.duration_since(at) >= LINE_INTERVAL
                });
                if due {
                    eprintln!("{}", line(job));
                    *last = Some((job.state, now));
                }
            }
        }
    }
}

impl Drop for Display {
    /// However the following ends, the bar gives way to a line that says how far it got: what is
    /// printed next begins a line of its own.
    fn drop(&mut self) {
        if let Self::Bar { bar, last } = self {
            bar.finish_and_clear();
            eprintln!("{last}");
        }
    }
}

fn line(job: &Job) -> String {
    let counts = counts(job);
    if counts.is_empty() {
        job.state.as_str().to_owned()
    } else {
        format!("{}: {counts}", job.state.as_str())
    }
}

/// Tokens, rate and time left, as far as they are known; before that, what is fetched.
fn counts(job: &Job) -> String {
    let progress = &job.progress;
    if let Some(download) = progress.download {
        return format!(
            "{} of {} fetched",
            DecimalBytes(download.bytes),
            DecimalBytes(download.total_bytes)
        );
    }
    let Some(planned) = progress.planned_tokens else {
        return String::new();
    };
    let counted = format!(
        "{} of {} tokens",
        grouped(progress.scored_tokens),
        grouped(planned)
    );
    let speed = progress
        .tokens_per_second
        .map(|speed| format!("{} tokens/s", rate(speed)));
    let left = progress.eta_seconds.filter(|_| !job.state.is_final());
    let left = left.map(|seconds| format!("{} left", duration(seconds)));
    let parts: Vec<_> = [Some(counted), speed, left].into_iter().flatten().collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: &str, progress: &str) -> Job {
        let text = format!(
            r#"{{"id": "00000000-0000-0000-0000-000000000000", "name": null, "state": "{state}",
                "model": "m", "datasets": ["d"], "dtype": "float32", "tags": {{}},
                "method": {{"convention": "rolling", "window": 8}},
                "created_at": "2026-01-01T00:00:00Z", "started_at": null, "finished_at": null,
                "progress": {progress}, "error": null}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn lines_say_what_is_known() {
        let unplanned = r#"{"scored_tokens": 0, "planned_tokens": null, "tokens_per_second": null,
            "eta_seconds": null, "datasets": []}"#;
        assert_eq!(line(&job("planning", unplanned)), "planning");
        let fetching = r#"{"scored_tokens": 0, "planned_tokens": null, "tokens_per_second": null,
            "eta_seconds": null, "datasets": [],
            "download": {"bytes": 1500000, "total_bytes": 4000000000}}"#;
        assert_eq!(
            line(&job("planning", fetching)),
            "planning: 1.50 MB of 4.00 GB fetched"
        );
        let half = r#"{"scored_tokens": 5000, "planned_tokens": 10000, "tokens_per_second": 250.0,
            "eta_seconds": 20.0, "datasets": []}"#;
        assert_eq!(
            line(&job("running", half)),
            "running: 5,000 of 10,000 tokens, 250 tokens/s, 20 s left"
        );
        assert_eq!(
            line(&job("cancelled", half)),
            "cancelled: 5,000 of 10,000 tokens, 250 tokens/s"
        );
    }
}
