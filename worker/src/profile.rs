//! What this worker spends its time on, written down where it is asked for: a line for each span
//! of [`ProfileSpan`].

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use assay_api::{JobId, ProfileSpan, ProfiledShard, ProfiledWork};
use assay_decoder::{Decoder, DecoderError, MIN_GEMM_ROWS, Profile, Stage};

/// Where the spans go; nowhere, if nobody asked for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Profiler(Option<Arc<Sink>>);

#[derive(Debug)]
struct Sink {
    /// The moment from which spans are measured, and the clock of the host then.
    origin: (Instant, Duration),
    file: Mutex<File>,
}

impl Profiler {
    /// Appends to the file: a worker that starts itself anew goes on with it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let file = File::options().append(true).create(true).open(path);
        let file = file.with_context(|| format!("--profile: cannot write {}", path.display()))?;
        let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Ok(Self(Some(Arc::new(Sink {
            origin: (Instant::now(), clock.unwrap_or_default()),
            file: Mutex::new(file),
        }))))
    }

    /// What a device, or the worker for all of them, does for a job.
    pub(crate) fn of(&self, job: JobId, device: Option<&str>) -> Track {
        Track {
            sink: self.0.clone(),
            job,
            device: device.map(str::to_owned),
        }
    }
}

/// The spans of a job on a device.
#[derive(Clone, Debug)]
pub(crate) struct Track {
    sink: Option<Arc<Sink>>,
    job: JobId,
    device: Option<String>,
}

impl Track {
    /// Whether they are written down.
    pub(crate) fn is_kept(&self) -> bool {
        self.sink.is_some()
    }

    /// Runs a step and writes down what it took.
    pub(crate) fn time<T>(&self, work: ProfiledWork, step: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let value = step();
        self.until_now(work, started);
        value
    }

    /// Writes down what began at `started` and ends now.
    pub(crate) fn until_now(&self, work: ProfiledWork, started: Instant) {
        self.span(work, started, started.elapsed());
    }

    /// Writes down a span. A disk that is full costs the profile, and no job.
    pub(crate) fn span(&self, work: ProfiledWork, started: Instant, length: Duration) {
        let Some(sink) = &self.sink else { return };
        let (origin, clock) = sink.origin;
        let start = clock + started.saturating_duration_since(origin);
        let span = ProfileSpan {
            job: self.job,
            device: self.device.clone(),
            start: start.as_secs_f64(),
            seconds: length.as_secs_f64(),
            work,
        };
        let mut line = serde_json::to_vec(&span).expect("numbers and strings are JSON");
        line.push(b'\n');
        let mut file = sink.file.lock().expect("writing does not panic");
        if let Err(error) = file.write_all(&line) {
            tracing::warn!(%error, "the profile lacks a line");
        }
    }
}

/// A shard as the decoder saw it.
pub(crate) fn shard(profile: &Profile, tokens: u64) -> ProfiledShard {
    let stages = Stage::ALL.iter().map(|stage| {
        let seconds = profile.spent(*stage).as_secs_f64();
        (stage.name().to_owned(), seconds)
    });
    ProfiledShard {
        tokens,
        micro_batches: profile
            .rows
            .iter()
            .map(|rows| (*rows).max(MIN_GEMM_ROWS))
            .collect(),
        stages: stages.collect(),
    }
}

/// Runs of the products at most, of which the fastest counts.
const RUNS: usize = 5;
/// After this long no other run is begun.
const ENOUGH: Duration = Duration::from_secs(1);

/// The time of the matrix products of a micro-batch of `rows` tokens alone.
///
/// # Errors
/// When libtorch fails.
pub(crate) fn products(
    decoder: &Decoder,
    device: tch::Device,
    rows: usize,
) -> Result<Duration, DecoderError> {
    let mut fastest = Duration::MAX;
    let begun = Instant::now();
    for _ in 0..RUNS {
        let started = Instant::now();
        decoder.products(rows)?;
        // They run behind the calls that start them.
        if let tch::Device::Cuda(index) = device {
            tch::Cuda::synchronize(i64::try_from(index).unwrap_or(i64::MAX));
        }
        fastest = fastest.min(started.elapsed());
        if begun.elapsed() > ENOUGH {
            break;
        }
    }
    Ok(fastest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_lines_that_are_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile");
        let job = JobId::now_v7();
        for device in [Some("cpu:0"), None] {
            let track = Profiler::open(Some(&path)).unwrap().of(job, device);
            assert!(track.is_kept());
            assert_eq!(track.time(ProfiledWork::Open, || 7), 7);
            let shard = ProfiledWork::Score(shard(&Profile::default(), 3));
            track.span(shard, Instant::now(), Duration::from_millis(1500));
        }
        let text = std::fs::read_to_string(path).unwrap();
        let spans: Vec<ProfileSpan> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let devices: Vec<_> = spans.iter().map(|span| span.device.as_deref()).collect();
        assert_eq!(devices, [Some("cpu:0"), Some("cpu:0"), None, None]);
        assert!(spans.iter().all(|span| span.job == job));
        assert!(spans.is_sorted_by(|a, b| a.start <= b.start), "{text}");
        assert_eq!(
            (&spans[0].work, spans[1].seconds),
            (&ProfiledWork::Open, 1.5)
        );
        let ProfiledWork::Score(scored) = &spans[3].work else {
            panic!("{text}");
        };
        assert_eq!((scored.tokens, scored.stages.len()), (3, Stage::ALL.len()));
    }

    #[test]
    fn nothing_is_kept_unless_it_is_asked_for() {
        let track = Profiler::open(None).unwrap().of(JobId::now_v7(), None);
        assert!(!track.is_kept());
        assert_eq!(track.time(ProfiledWork::Load, || 7), 7);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let error = Profiler::open(Some(Path::new("/nowhere/profile"))).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("--profile") && error.contains("/nowhere/profile"),
            "{error}"
        );
    }
}
