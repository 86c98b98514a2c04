//! What a worker wrote down, as seconds and shares.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use assay_api::{JobId, ProfileSpan, ProfiledShard, ProfiledWork};
use serde::Serialize;

use crate::failure::Failure;

/// The stages, in the order of the report, with what they are. The first eight are those of the
/// decoder.
pub(super) const STAGES: [(&str, &str); 16] = [
    ("products", "products of the blocks"),
    ("attention", "attention"),
    ("norm", "norms"),
    ("rotary", "rotary embedding"),
    ("activation", "activation"),
    ("embedding", "embedding"),
    ("head", "head"),
    ("loss", "loss"),
    (SCORING, "rest of scoring"),
    (OPEN, "opening files"),
    (TOKENIZE, "tokenizing"),
    (PLAN, "planning"),
    (LOAD, "loading weights"),
    (CLAIM, "claiming"),
    (COMMIT, "waiting for commits"),
    (OTHER, "other"),
];
const SCORING: &str = "scoring";
const OPEN: &str = "open";
const TOKENIZE: &str = "tokenize";
const PLAN: &str = "plan";
const LOAD: &str = "load";
const CLAIM: &str = "claim";
const COMMIT: &str = "commit";
const OTHER: &str = "other";

/// Where the time of a job went.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    /// Devices that took part.
    pub(super) devices: usize,
    /// Wall seconds from the first claim to the last commit, without those in which the floor was
    /// measured.
    pub(super) seconds: f64,
    /// Tokens scored, as often as they were.
    pub(super) tokens: u64,
    pub(super) tokens_per_second: f64,
    pub(super) micro_batches: usize,
    /// Seconds in which shards were scored, summed over the devices.
    pub(super) scoring_seconds: f64,
    /// Seconds that the matrix products of the same micro-batches take alone; null if they could
    /// not be measured.
    pub(super) floor_seconds: Option<f64>,
    /// The floor over the seconds of scoring.
    pub(super) floor_ratio: Option<f64>,
    /// In the order of [`STAGES`].
    pub(super) stages: Vec<Part>,
}

/// A stage of a job.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    pub(super) stage: &'static str,
    /// Summed over the devices.
    pub(super) seconds: f64,
    /// Of the devices' time; the shares add up to 1.
    pub(super) share: f64,
}

/// Reads the file of a worker.
///
/// # Errors
/// It cannot be read, or a line of it.
pub(super) fn read(file: &Path) -> Result<Vec<ProfileSpan>, Failure> {
    let unusable = |error: &dyn std::fmt::Display| {
        Failure::Failed(format!(
            "the worker's profile cannot be read: {error}; build all programs anew (`make build`)"
        ))
    };
    let text = fs::read_to_string(file).map_err(|error| unusable(&error))?;
    text.lines()
        .map(|line| serde_json::from_str(line).map_err(|error| unusable(&error)))
        .collect()
}

impl Run {
    /// The run of a job.
    ///
    /// # Errors
    /// No span tells of it.
    pub(super) fn of(spans: &[ProfileSpan], job: JobId) -> Result<Self, Failure> {
        let of_job: Vec<_> = spans.iter().filter(|span| span.job == job).collect();
        let Some(bounds) = bounds(&of_job) else {
            let text = format!("the worker wrote down nothing of job {job}; run it again");
            return Err(Failure::Failed(text));
        };
        let devices: BTreeSet<_> = of_job.iter().filter_map(|s| s.device.as_deref()).collect();
        let mut spent = Spent::default();
        for span in &of_job {
            spent.add(span);
        }
        for device in &devices {
            spent.add_to(COMMIT, uncovered_commits(&of_job, device, bounds));
        }
        let all = (bounds.1 - bounds.0) * devices.len() as f64 - spent.measuring;
        let told: f64 = spent.stages.values().sum();
        spent.add_to(OTHER, (all - told).max(0.0));

        let seconds = all / devices.len() as f64;
        let floor = floor(spans, &of_job);
        Ok(Self {
            devices: devices.len(),
            seconds,
            tokens: spent.tokens,
            tokens_per_second: spent.tokens as f64 / seconds,
            micro_batches: spent.micro_batches,
            scoring_seconds: spent.scoring,
            floor_seconds: floor,
            floor_ratio: floor.map(|floor| floor / spent.scoring),
            stages: STAGES
                .iter()
                .map(|&(stage, _)| {
                    let seconds = spent.stages.get(stage).copied().unwrap_or_default();
                    Part {
                        stage,
                        seconds,
                        share: seconds / all,
                    }
                })
                .collect(),
        })
    }
}

/// From when to when the spans of a job are.
fn bounds(spans: &[&ProfileSpan]) -> Option<(f64, f64)> {
    let start = spans.iter().map(|span| span.start).reduce(f64::min)?;
    let end = spans.iter().map(|span| end(span)).reduce(f64::max)?;
    Some((start, end))
}

fn end(span: &ProfileSpan) -> f64 {
    span.start + span.seconds
}

/// Sums over the spans of a job.
#[derive(Default)]
struct Spent {
    stages: BTreeMap<&'static str, f64>,
    scoring: f64,
    /// Of the floor.
    measuring: f64,
    tokens: u64,
    micro_batches: usize,
}

impl Spent {
    fn add_to(&mut self, stage: &'static str, seconds: f64) {
        *self.stages.entry(stage).or_default() += seconds;
    }

    fn add(&mut self, span: &ProfileSpan) {
        let stage = match &span.work {
            ProfiledWork::Claim => CLAIM,
            ProfiledWork::Open => OPEN,
            ProfiledWork::Tokenize => TOKENIZE,
            ProfiledWork::Plan => PLAN,
            ProfiledWork::Load => LOAD,
            ProfiledWork::HandOver => COMMIT,
            ProfiledWork::Score(shard) => return self.add_shard(shard, span.seconds),
            // Of these counts what devices wait for.
            ProfiledWork::Commit => return,
            ProfiledWork::Floor { .. } => {
                self.measuring += span.seconds;
                return;
            }
        };
        self.add_to(stage, span.seconds);
    }

    fn add_shard(&mut self, shard: &ProfiledShard, seconds: f64) {
        self.tokens += shard.tokens;
        self.micro_batches += shard.micro_batches.len();
        self.scoring += seconds;
        let mut rest = seconds;
        for (stage, _) in STAGES {
            if let Some(&seconds) = shard.stages.get(stage) {
                self.add_to(stage, seconds);
                rest -= seconds;
            }
        }
        self.add_to(SCORING, rest.max(0.0));
    }
}

/// Seconds in which results were counted and the device did nothing else.
fn uncovered_commits(spans: &[&ProfileSpan], device: &str, (start, finish): (f64, f64)) -> f64 {
    let mut busy: Vec<(f64, f64)> = spans
        .iter()
        .filter(|span| span.device.as_deref() == Some(device))
        .map(|span| (span.start, end(span)))
        .collect();
    busy.sort_by(|a, b| a.0.total_cmp(&b.0));
    busy.push((finish, finish));
    let mut idle = Vec::new();
    let mut from = start;
    for (start, end) in busy {
        if start > from {
            idle.push((from, start));
        }
        from = from.max(end);
    }
    let commits = spans
        .iter()
        .filter(|span| span.work == ProfiledWork::Commit);
    let overlaps = commits.flat_map(|commit| {
        let idle = idle.iter();
        idle.map(|&(from, to)| (to.min(end(commit)) - from.max(commit.start)).max(0.0))
    });
    overlaps.sum()
}

/// What the products of all micro-batches of a job take alone. Each has the time of its size, or of
/// the next larger one that was measured, by its share of that one's rows.
fn floor(spans: &[ProfileSpan], of_job: &[&ProfileSpan]) -> Option<f64> {
    let mut measured: BTreeMap<(Option<&str>, usize), f64> = BTreeMap::new();
    for span in spans {
        if let ProfiledWork::Floor { rows, fastest } = span.work {
            measured.insert((span.device.as_deref(), rows), fastest);
        }
    }
    let mut sum = 0.0;
    for span in of_job {
        let ProfiledWork::Score(shard) = &span.work else {
            continue;
        };
        for &rows in &shard.micro_batches {
            let device = span.device.as_deref();
            let mut larger = measured.range((device, rows)..=(device, usize::MAX));
            let (&(_, size), fastest) = larger.next()?;
            sum += fastest * rows as f64 / size as f64;
        }
    }
    (sum > 0.0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId::from_u128(1);

    fn span(device: Option<&str>, start: f64, seconds: f64, work: ProfiledWork) -> ProfileSpan {
        ProfileSpan {
            job: JOB,
            device: device.map(str::to_owned),
            start,
            seconds,
            work,
        }
    }

    fn shard(micro_batches: &[usize], stages: &[(&str, f64)]) -> ProfiledWork {
        let stages = stages.iter();
        ProfiledWork::Score(ProfiledShard {
            tokens: micro_batches.iter().sum::<usize>() as u64,
            micro_batches: micro_batches.to_vec(),
            stages: stages.map(|&(name, s)| (name.to_owned(), s)).collect(),
        })
    }

    fn seconds(run: &Run, stage: &str) -> f64 {
        let found = run.stages.iter().find(|part| part.stage == stage);
        found.unwrap().seconds
    }

    fn assert_close(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-9, "{value} is not {expected}");
    }

    /// One device, whose first result is counted while it computes the second.
    fn one_device() -> Vec<ProfileSpan> {
        let cpu = Some("cpu:0");
        let floor = ProfiledWork::Floor {
            rows: 512,
            fastest: 1.0,
        };
        let products = &[("products", 1.5), ("loss", 0.25), ("unheard of", 0.1)];
        vec![
            span(cpu, 100.0, 0.5, ProfiledWork::Claim),
            span(cpu, 100.5, 1.0, ProfiledWork::Tokenize),
            span(cpu, 102.0, 2.0, shard(&[512, 256], products)),
            span(cpu, 104.0, 3.0, floor),
            span(cpu, 107.0, 0.5, ProfiledWork::HandOver),
            span(None, 107.5, 1.0, ProfiledWork::Commit),
            span(cpu, 107.5, 2.0, shard(&[256], products)),
            span(None, 109.25, 0.75, ProfiledWork::Commit),
            // Of another job.
            ProfileSpan {
                job: JobId::from_u128(2),
                ..span(cpu, 50.0, 500.0, ProfiledWork::Load)
            },
        ]
    }

    #[test]
    fn the_stages_and_what_is_left_are_all_of_the_time() {
        let run = Run::of(&one_device(), JOB).unwrap();
        assert_eq!((run.devices, run.tokens, run.micro_batches), (1, 1024, 3));
        // 100 to 110, but for the three seconds of the floor.
        assert_close(run.seconds, 7.0);
        assert_close(run.tokens_per_second, 1024.0 / 7.0);
        for (stage, expected) in [
            ("claim", 0.5),
            ("tokenize", 1.0),
            ("products", 3.0),
            ("loss", 0.5),
            ("scoring", 0.5),
            ("load", 0.0),
            // Handed over, and of the commits what nothing was computed beside.
            ("commit", 1.0),
            ("other", 0.5),
        ] {
            assert_close(seconds(&run, stage), expected);
        }
        assert_close(run.stages.iter().map(|part| part.share).sum(), 1.0);
        let names: Vec<_> = run.stages.iter().map(|part| part.stage).collect();
        assert_eq!(names, STAGES.map(|(name, _)| name));
    }

    #[test]
    fn the_floor_is_that_of_the_sizes_that_were_computed() {
        let run = Run::of(&one_device(), JOB).unwrap();
        // 512 rows, and twice half as many.
        assert_close(run.floor_seconds.unwrap(), 1.0 + 0.5 + 0.5);
        assert_close(run.floor_ratio.unwrap(), 2.0 / 4.0);
        let mut spans = one_device();
        spans.retain(|span| !matches!(span.work, ProfiledWork::Floor { .. }));
        let run = Run::of(&spans, JOB).unwrap();
        assert_eq!((run.floor_seconds, run.floor_ratio), (None, None));
        let json = serde_json::to_value(&run).unwrap();
        assert_eq!(json["floor_seconds"], serde_json::Value::Null);
    }

    #[test]
    fn the_time_of_two_devices_is_twice_the_wall() {
        let mut spans = one_device();
        spans.push(span(Some("cpu:1"), 108.0, 1.0, shard(&[256], &[])));
        let run = Run::of(&spans, JOB).unwrap();
        assert_eq!(run.devices, 2);
        assert_close(run.seconds, (20.0 - 3.0) / 2.0);
        // The second device was idle in half a second of the first commit, and all of the second.
        assert_close(seconds(&run, "commit"), 1.0 + 0.5 + 0.75);
        assert_close(run.stages.iter().map(|part| part.share).sum(), 1.0);
        // What it computed has no floor of its own.
        assert_eq!(run.floor_seconds, None);
    }

    #[test]
    fn a_job_that_nothing_is_known_of_is_an_error() {
        let error = Run::of(&one_device(), JobId::nil()).unwrap_err();
        assert!(error.to_string().contains("nothing of job"), "{error}");
    }

    #[test]
    fn a_file_that_is_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("profile");
        assert!(read(&file).is_err());
        fs::write(&file, "{}\n").unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("missing field"), "{error}");
    }
}
