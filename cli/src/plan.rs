//! `assay plan`.

use std::process::ExitCode;

use assay_api::{JobRequest, PlanComparison, PlanDevice, PlanRequest, Strategy};
use reqwest::Method;

use crate::client::{Retry, ServerArgs};
use crate::failure::{EXIT_CODES, Outcome};
use crate::job::JobArgs;
use crate::numbers::{counted, duration, grouped, rate};
use crate::output;
use crate::table::{self, Column};

/// Predict how long a job would take on devices of given speeds, by several ways to spread it.
///
/// The server reads and tokenizes the datasets as the job would; nothing is scored, and no job is
/// made. The table has the seconds at which the devices end: the last one (the job's end), their
/// mean and standard deviation, and how far the last one is over what no way of spreading can go
/// below.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Plan {
    /// Device: its tokens per second at this job, alone; may be given again
    ///
    /// [NAME=][COUNTx]TOKENS_PER_SECOND: 1200, 4x1200 or old=2x900.
    #[arg(long = "device", value_name = "DEVICE", required = true, value_parser = device)]
    devices: Vec<PlanDevice>,
    /// Decides what `random` draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print the server's JSON, a line for each model
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    server: ServerArgs,
}

const COLUMNS: [Column; 6] = [
    Column::text("strategy", 0),
    Column::text("devices", 3),
    Column::number("max s", 0),
    Column::number("mean s", 1),
    Column::number("standard deviation s", 2),
    Column::number("over the bound", 0),
];

fn device(text: &str) -> Result<PlanDevice, String> {
    let usage = || {
        format!(
            "{text:?} is no device; give [NAME=][COUNTx]TOKENS_PER_SECOND, such as 4x1200 or \
             old=2x900"
        )
    };
    let (name, speed) = match text.split_once('=') {
        Some((name, speed)) if !name.is_empty() => (Some(name.to_owned()), speed),
        Some(_) => return Err(usage()),
        None => (None, text),
    };
    let (count, speed) = match speed.split_once('x') {
        Some((count, speed)) => (count.parse().map_err(|_| usage())?, speed),
        None => (1, speed),
    };
    let tokens_per_second: f64 = speed.parse().map_err(|_| usage())?;
    // JSON has no numbers for the others; the server says what is wrong with the rest.
    if !tokens_per_second.is_finite() {
        return Err(usage());
    }
    Ok(PlanDevice {
        name,
        tokens_per_second,
        count,
    })
}

pub(crate) async fn run(plan: &Plan) -> Outcome {
    let jobs = plan.job.requests()?;
    let several = jobs.len() > 1;
    let client = plan.server.client()?.patient();
    for job in jobs {
        let request = PlanRequest {
            // Neither changes how a job runs, and the baseline of the gate need not be there.
            job: JobRequest {
                gate: None,
                webhook: None,
                ..job
            },
            devices: plan.devices.clone(),
            seed: plan.seed,
        };
        let answer = client
            .call::<PlanComparison>(Method::POST, "/plans", Retry::Interrupted, |http| {
                http.json(&request)
            })
            .await?;
        if plan.json {
            output::line(answer.text);
            continue;
        }
        if several {
            output::line(output::printable(&request.job.model.to_string()));
        }
        output::line(render(&answer.value, &plan.devices, output::width()));
    }
    Ok(ExitCode::SUCCESS)
}

fn render(compared: &PlanComparison, devices: &[PlanDevice], width: Option<usize>) -> String {
    let bound = compared.lower_bound_seconds;
    let fixed = |seconds| fixed(seconds, bound);
    let rows: Vec<_> = compared
        .strategies
        .iter()
        .map(|predicted| {
            let seconds = predicted.seconds;
            vec![
                name(predicted.strategy).to_owned(),
                used(&predicted.device_seconds),
                fixed(seconds.max),
                fixed(seconds.mean),
                fixed(seconds.standard_deviation),
                over(predicted.over_lower_bound),
            ]
        })
        .collect();
    let devices = devices.iter().map(|device| {
        let name = device.name.as_ref().map(|name| format!("{name}: "));
        format!(
            "{}{} of {} tokens/s",
            name.unwrap_or_default(),
            counted(device.count.into(), "device"),
            rate(device.tokens_per_second)
        )
    });
    let facts = [
        (
            "job",
            vec![
                format!(
                    "{}, {}, {} scored",
                    counted(compared.documents, "document"),
                    counted(compared.windows, "window"),
                    counted(compared.scored_tokens, "token"),
                ),
                format!(
                    "{} in {}",
                    operations(compared.flops),
                    counted(compared.shards, "shard")
                ),
            ],
        ),
        ("devices", devices.collect()),
        (
            "bound",
            vec![format!(
                "{} s ({}): all work and no rest, or the longest window on the fastest device",
                fixed(bound),
                duration(bound)
            )],
        ),
        (
            "note",
            vec!["dynamic is how jobs run; the others deal whole documents beforehand".to_owned()],
        ),
    ];
    [
        table::render(&COLUMNS, &rows, width),
        output::facts(&facts, width),
    ]
    .join("\n")
}

/// How many devices have something to do.
fn used(device_seconds: &[f64]) -> String {
    let used = device_seconds.iter().filter(|seconds| **seconds > 0.0);
    let (used, all) = (used.count() as u64, device_seconds.len() as u64);
    if used == all {
        grouped(all)
    } else {
        format!("{} of {}", grouped(used), grouped(all))
    }
}

fn name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Random => "random",
        Strategy::Even => "even",
        Strategy::Length => "length",
        Strategy::Dynamic => "dynamic",
    }
}

/// What a ratio is above 1, which rounding may leave a little below.
fn over(ratio: f64) -> String {
    if ratio < 10.0 {
        return format!("+{:.1} %", (100.0 * (ratio - 1.0)).max(0.0));
    }
    format!("{ratio:.1} times")
}

/// Seconds with the decimals that say something where `scale` is what matters.
fn fixed(seconds: f64, scale: f64) -> String {
    if scale < 1.0 {
        return format!("{seconds:.4}");
    }
    if scale < 1000.0 {
        return format!("{seconds:.2}");
    }
    // Saturates; a plan of that length is of no use.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    grouped(seconds.round() as u64)
}

fn operations(flops: f64) -> String {
    format!("{flops:.2e} operations")
}

#[cfg(test)]
mod tests {
    use assay_api::{Spread, StrategyPrediction};

    use super::*;

    #[test]
    fn devices_have_a_short_form() {
        let of = |name: Option<&str>, count, tokens_per_second| {
            Ok(PlanDevice {
                name: name.map(str::to_owned),
                tokens_per_second,
                count,
            })
        };
        assert_eq!(device("1200"), of(None, 1, 1200.0));
        assert_eq!(device("4x1.5e3"), of(None, 4, 1500.0));
        assert_eq!(device("box=2x900"), of(Some("box"), 2, 900.0));
        assert_eq!(device("x=900"), of(Some("x"), 1, 900.0));
        for bad in [
            "",
            "fast",
            "=3",
            "x900",
            "4x",
            "-1x900",
            "2x900=old",
            "inf",
            "1xnan",
        ] {
            let error = device(bad).unwrap_err();
            assert!(error.contains("4x1200"), "{bad}: {error}");
        }
    }

    #[test]
    fn numbers_have_the_figures_that_matter() {
        let fixed = |seconds| [0.5, 10.0, 2000.0].map(|scale| fixed(seconds, scale));
        assert_eq!(fixed(0.0123), ["0.0123", "0.01", "0"]);
        assert_eq!(fixed(123_456.7)[2], "123,457");
        let ratios = [1.0 - 1e-12, 1.034, 9.5, 520.66];
        assert_eq!(
            ratios.map(over),
            ["+0.0 %", "+3.4 %", "+850.0 %", "520.7 times"]
        );
        assert_eq!(used(&[1.0, 0.0, 2.0]), "2 of 3");
        assert_eq!(used(&[1.0, 2.0]), "2");
    }

    #[test]
    fn a_comparison_fits_the_terminal() {
        let strategies = [
            Strategy::Random,
            Strategy::Even,
            Strategy::Length,
            Strategy::Dynamic,
        ];
        let compared = PlanComparison {
            documents: 1_000_000,
            windows: 1_234_567,
            scored_tokens: 512_000_000,
            flops: 1.38e17,
            shards: 4096,
            lower_bound_seconds: 98_765.4,
            strategies: strategies
                .map(|strategy| StrategyPrediction {
                    strategy,
                    device_seconds: vec![123_456.0; 3],
                    seconds: Spread {
                        max: 123_456.0,
                        mean: 99_999.4,
                        standard_deviation: 12.345,
                    },
                    over_lower_bound: 1.25,
                })
                .into(),
        };
        let devices = [device("old=2x900").unwrap(), device("1200").unwrap()];
        for width in [40, 60, 80, 120] {
            let text = render(&compared, &devices, Some(width));
            let widest = text.lines().map(output::columns).max().unwrap();
            assert!(widest <= width, "{text}");
            for part in ["dynamic", "123,456", "+25.0 %"] {
                assert!(text.contains(part), "{part} in {text}");
            }
        }
        let text = render(&compared, &devices, None);
        for part in ["old: 2 devices of 900 tokens/s", "4,096 shards"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
