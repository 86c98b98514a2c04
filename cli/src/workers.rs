//! `assay workers`.

use std::process::ExitCode;

use assay_api::{Page, WorkerRow, WorkerState};
use chrono::{DateTime, Utc};

use crate::client::{Retry, ServerArgs, with_query};
use crate::failure::{EXIT_CODES, Outcome};
use crate::numbers::{age, grouped};
use crate::output::{self, labelled};
use crate::table::{self, Column};

/// List workers, the newest first, and why those are out of service that are.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Workers {
    /// How many
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
    /// Print the server's JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

const COLUMNS: [Column; 6] = [
    Column::name("name", 0),
    Column::text("state", 0),
    Column::name("devices", 1),
    Column::number("running", 2),
    Column::number("late", 4),
    Column::text("heard of", 3),
];

pub(crate) async fn run(workers: &Workers) -> Outcome {
    let path = with_query("/workers", &[("limit", Some(workers.limit.to_string()))]);
    let client = workers.server.client()?;
    let answer = client
        .get::<Page<WorkerRow>>(&path, Retry::Interrupted)
        .await?;
    if workers.json {
        output::line(answer.text);
    } else if answer.value.items.is_empty() {
        output::line("no workers");
    } else {
        output::line(render(&answer.value.items, Utc::now(), output::width()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The table, and below it what is wrong with whom.
fn render(workers: &[WorkerRow], now: DateTime<Utc>, width: Option<usize>) -> String {
    let rows: Vec<_> = workers.iter().map(|worker| row(worker, now)).collect();
    let mut lines = vec![table::render(&COLUMNS, &rows, width)];
    for worker in workers {
        if let Some(reason) = &worker.out_of_service {
            let label = format!("{} is out of service: ", worker.name);
            lines.push(labelled(&label, reason, width));
        }
        if let Some(error) = &worker.last_error {
            let label = format!("{}, {} ago: ", worker.name, age(now - error.at));
            let text = format!("{} {}", error.code, error.detail);
            lines.push(labelled(&label, &text, width));
        }
    }
    lines.join("\n")
}

fn row(worker: &WorkerRow, now: DateTime<Utc>) -> Vec<String> {
    let devices: Vec<&str> = worker.devices.iter().map(|d| &*d.name).collect();
    let state = match worker.state {
        WorkerState::Live => "live",
        WorkerState::Stopped => "stopped",
        WorkerState::Lost => "lost",
        WorkerState::OutOfService => "out of service",
    };
    vec![
        worker.name.clone(),
        state.to_owned(),
        devices.join(","),
        grouped(worker.running),
        grouped(worker.late_commits),
        format!("{} ago", age(now - worker.last_seen_at)),
    ]
}

#[cfg(test)]
mod tests {
    use assay_api::{DeviceStatus, ErrorCode, WorkerError};

    use super::*;

    #[test]
    fn what_is_wrong_stands_below_the_table() {
        let now = Utc::now();
        let worker = WorkerRow {
            id: uuid::Uuid::nil(),
            name: "host-7".to_owned(),
            state: WorkerState::OutOfService,
            version: "0.1.0".to_owned(),
            devices: vec![DeviceStatus {
                name: "cuda:0".to_owned(),
                kind: "cuda/x".to_owned(),
            }],
            started_at: now,
            last_seen_at: now,
            running: 0,
            late_commits: 3,
            out_of_service: Some("its sums are wrong".to_owned()),
            last_error: Some(WorkerError {
                code: ErrorCode::DatabaseUnreachable,
                detail: "out of reach for 20 s".to_owned(),
                at: now,
            }),
        };
        let text = render(&[worker], now, Some(100));
        for part in [
            "out of service",
            "cuda:0",
            "host-7 is out of service: its sums are wrong",
            "E1001 out of reach for 20 s",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
