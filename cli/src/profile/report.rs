//! A profile as people read it.

use super::Profiled;
use super::spans::{Run, STAGES};
use crate::numbers::{counted, grouped, rate};
use crate::table::{self, Column};
use crate::{method, output};

const COLUMNS: [Column; 5] = [
    Column::text("stage", 0),
    Column::number("s", 0),
    Column::number("share", 0),
    Column::number("first run s", 1),
    Column::number("first run share", 2),
];

/// The table of the stages, and what else is known.
pub(super) fn render(profiled: &Profiled, width: Option<usize>) -> String {
    let (first, second) = (&profiled.first, &profiled.second);
    let stages = STAGES.iter().zip(&second.stages).zip(&first.stages);
    let mut rows: Vec<_> = stages
        .map(|(((_, label), second), first)| {
            vec![
                (*label).to_owned(),
                seconds(second.seconds),
                percent(second.share),
                seconds(first.seconds),
                percent(first.share),
            ]
        })
        .collect();
    let all = |run: &Run| seconds(run.stages.iter().map(|part| part.seconds).sum());
    rows.push(vec![
        "all".to_owned(),
        all(second),
        percent(1.0),
        all(first),
        percent(1.0),
    ]);
    let methods = profiled.method.as_slice().iter();
    let facts = [
        ("model", vec![profiled.model.clone()]),
        ("dataset", vec![profiled.dataset.clone()]),
        ("method", methods.map(method::describe).collect()),
        (
            "scored",
            vec![format!(
                "{} in {}, {} micro-batch{}",
                counted(profiled.planned_tokens, "token"),
                profiled.dtype.as_str(),
                grouped(second.micro_batches as u64),
                if second.micro_batches == 1 { "" } else { "es" }
            )],
        ),
        ("speed", speed(second)),
        ("floor", vec![floor(second)]),
        ("device", profiled.device_kinds.clone()),
    ];
    [
        table::render(&COLUMNS, &rows, width),
        output::facts(&facts, width),
    ]
    .join("\n")
}

fn speed(run: &Run) -> Vec<String> {
    let devices = run.devices as f64;
    let scoring = run.tokens as f64 * devices / run.scoring_seconds;
    vec![format!(
        "{} tokens/s by {}, {} while they score",
        rate(run.tokens_per_second),
        counted(run.devices as u64, "device"),
        rate(scoring)
    )]
}

fn floor(run: &Run) -> String {
    match (run.floor_seconds, run.floor_ratio) {
        (Some(floor), Some(ratio)) => format!(
            "{} of {} s of scoring are what its matrix products take alone: {ratio:.3}",
            seconds(floor),
            seconds(run.scoring_seconds)
        ),
        _ => "could not be measured".to_owned(),
    }
}

fn seconds(value: f64) -> String {
    format!("{value:.3}")
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use assay_api::{Dtype, Method, OneOrMany};

    use super::*;
    use crate::profile::spans::Part;

    fn run(scale: f64) -> Run {
        let stages = STAGES.iter().enumerate().map(|(index, &(stage, _))| Part {
            stage,
            seconds: scale * index as f64,
            share: index as f64 / 120.0,
        });
        Run {
            devices: 2,
            seconds: 60.0 * scale,
            tokens: 98_828,
            tokens_per_second: 1_647.133,
            micro_batches: 49,
            scoring_seconds: 36.0 * scale,
            floor_seconds: Some(27.0 * scale),
            floor_ratio: Some(0.75),
            stages: stages.collect(),
        }
    }

    fn profiled() -> Profiled {
        Profiled {
            model: "build/demo/models/SmolLM2-135M-Instruct.Q4_1.gguf".to_owned(),
            dataset: "demo/moby-dick.txt".to_owned(),
            method: OneOrMany::One(Method::rolling(2048)),
            dtype: Dtype::Float32,
            device_kinds: vec!["cpu/x/threads-1".to_owned()],
            planned_tokens: 98_828,
            first: run(2.0),
            second: run(1.0),
        }
    }

    #[test]
    fn the_table_has_both_runs_and_fits_the_terminal() {
        for width in [50, 60, 80, 120] {
            let text = render(&profiled(), Some(width));
            let widest = text.lines().map(output::columns).max().unwrap();
            assert!(widest <= width, "{text}");
            for part in ["products of the blocks", "15.000", "12.5 %"] {
                assert!(text.contains(part), "{part} in {text}");
            }
        }
        let text = render(&profiled(), None);
        for part in [
            "30.000",
            "│ all                    ┆ 120.000 ┆ 100.0 % ┆     240.000 ┆         100.0 % │",
            "98,828 tokens in float32, 49 micro-batches",
            "1,647 tokens/s by 2 devices, 5,490 while they score",
            "27.000 of 36.000 s of scoring are what its matrix products take alone: 0.750",
            "rolling, window 2048",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_floor_that_is_not_known_is_said_to_be_so() {
        let mut profiled = profiled();
        profiled.second.floor_seconds = None;
        let text = render(&profiled, None);
        assert!(text.contains("floor    could not be measured"), "{text}");
    }
}
