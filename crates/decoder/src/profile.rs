//! Where the time of [`Decoder::score`](crate::Decoder::score) goes, measured while it runs.
//!
//! A step of the forward pass says which stage it is, by [`Recorder::enter`] or
//! [`Recorder::time`]. Each moment belongs to the innermost stage, so that a step within another
//! is not counted twice. Nothing is measured but between
//! [`Decoder::start_profile`](crate::Decoder::start_profile) and
//! [`Decoder::take_profile`](crate::Decoder::take_profile).

use std::cell::RefCell;
use std::time::{Duration, Instant};

use tch::{Cuda, Device};

/// A kind of step of the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Rows of the embedding, their scale, their positions and their projection.
    Embedding,
    /// Norms, wherever they are.
    Norm,
    /// Matrix products with the weights of the blocks.
    Products,
    /// Rotary embedding, the factors included.
    Rotary,
    /// Attention without its products with weights.
    Attention,
    /// Activation of the MLP, the gate included; a part of the products where it is computed with
    /// them.
    Activation,
    /// From the residual stream to logits; to NLLs where logits exist a few at a time.
    Head,
    /// From logits to NLLs, and their way to the host.
    Loss,
}

impl Stage {
    /// All stages, in the order of the forward pass.
    pub const ALL: [Self; 8] = [
        Self::Embedding,
        Self::Norm,
        Self::Products,
        Self::Rotary,
        Self::Attention,
        Self::Activation,
        Self::Head,
        Self::Loss,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Norm => "norm",
            Self::Products => "products",
            Self::Rotary => "rotary",
            Self::Attention => "attention",
            Self::Activation => "activation",
            Self::Head => "head",
            Self::Loss => "loss",
        }
    }
}

/// What a decoder did while it was profiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// By the index of the stage in [`Stage::ALL`].
    spent: [Duration; Stage::ALL.len()],
    /// Rows of each micro-batch that was scored, in order, its padding not counted.
    pub rows: Vec<usize>,
}

impl Profile {
    /// The time in a stage. What is in none of them is left out.
    pub fn spent(&self, stage: Stage) -> Duration {
        self.spent[stage as usize]
    }

    /// How many micro-batches were scored.
    pub fn micro_batches(&self) -> usize {
        self.rows.len()
    }
}

/// What a decoder measures itself with. Off, a stage costs the look whether it is on.
pub(crate) struct Recorder {
    /// Where the stages run. Kernels of a GPU run behind the calls that start them, so that it is
    /// waited for at the bounds of a stage.
    device: Device,
    running: RefCell<Option<Running>>,
}

struct Running {
    profile: Profile,
    stage: Option<Stage>,
    since: Instant,
}

impl Recorder {
    /// One that is off.
    pub(crate) fn new(device: Device) -> Self {
        Self {
            device,
            running: RefCell::new(None),
        }
    }

    /// Starts anew.
    pub(crate) fn start(&self) {
        self.running.replace(Some(Running {
            profile: Profile::default(),
            stage: None,
            since: Instant::now(),
        }));
    }

    /// Ends. None if it was off.
    pub(crate) fn take(&self) -> Option<Profile> {
        self.running.take().map(|running| running.profile)
    }

    /// Tells that a micro-batch of so many rows was scored.
    pub(crate) fn scored(&self, rows: usize) {
        if let Some(running) = self.running.borrow_mut().as_mut() {
            running.profile.rows.push(rows);
        }
    }

    /// From here to the end of the timer is `stage`, but for stages entered meanwhile.
    pub(crate) fn enter(&self, stage: Stage) -> Timer<'_> {
        let is_on = self.running.borrow().is_some();
        Timer {
            around: if is_on {
                self.change(Some(stage))
            } else {
                None
            },
            recorder: is_on.then_some(self),
        }
    }

    /// Runs a step, which is `stage`.
    pub(crate) fn time<T>(&self, stage: Stage, step: impl FnOnce() -> T) -> T {
        let _timer = self.enter(stage);
        step()
    }

    /// Counts the time until now to the stage it was in, and answers that.
    fn change(&self, to: Option<Stage>) -> Option<Stage> {
        if let Device::Cuda(index) = self.device {
            Cuda::synchronize(i64::try_from(index).unwrap_or(i64::MAX));
        }
        let mut running = self.running.borrow_mut();
        let running = running.as_mut()?;
        let now = Instant::now();
        if let Some(stage) = running.stage {
            running.profile.spent[stage as usize] += now - running.since;
        }
        running.since = now;
        std::mem::replace(&mut running.stage, to)
    }
}

/// The time of a stage, until this is dropped.
#[must_use = "the stage ends when it is dropped"]
pub(crate) struct Timer<'a> {
    /// None if nothing is measured.
    recorder: Option<&'a Recorder>,
    /// The stage that this one interrupts.
    around: Option<Stage>,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        if let Some(recorder) = self.recorder {
            recorder.change(self.around);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Until the clock has moved by `least`.
    fn spin(least: Duration) {
        let started = Instant::now();
        while started.elapsed() < least {}
    }

    const STEP: Duration = Duration::from_millis(2);

    #[test]
    fn names_are_those_of_all_stages() {
        let names: Vec<_> = Stage::ALL.iter().map(|stage| stage.name()).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names.len());
        for (index, stage) in Stage::ALL.iter().enumerate() {
            assert_eq!(*stage as usize, index);
        }
    }

    #[test]
    fn nothing_is_measured_unless_it_is_asked_for() {
        let recorder = Recorder::new(Device::Cpu);
        recorder.time(Stage::Norm, || spin(STEP));
        recorder.scored(7);
        assert_eq!(recorder.take(), None);
        recorder.start();
        assert_eq!(recorder.take(), Some(Profile::default()));
        assert_eq!(recorder.take(), None);
    }

    #[test]
    fn each_moment_belongs_to_the_innermost_stage() {
        let recorder = Recorder::new(Device::Cpu);
        recorder.start();
        let started = Instant::now();
        let outer = recorder.enter(Stage::Attention);
        spin(STEP);
        recorder.time(Stage::Rotary, || {
            recorder.time(Stage::Norm, || spin(STEP));
            spin(2 * STEP);
        });
        spin(STEP);
        drop(outer);
        // In no stage.
        spin(STEP);
        recorder.time(Stage::Norm, || spin(STEP));
        recorder.scored(5);
        recorder.scored(3);

        let most = started.elapsed().saturating_sub(STEP);
        let profile = recorder.take().unwrap();
        assert_eq!(
            (profile.micro_batches(), profile.rows.as_slice()),
            (2, &[5, 3][..])
        );
        for (stage, least) in [
            (Stage::Attention, 2 * STEP),
            (Stage::Rotary, 2 * STEP),
            (Stage::Norm, 2 * STEP),
            (Stage::Loss, Duration::ZERO),
        ] {
            assert!(profile.spent(stage) >= least, "{stage:?}: {profile:?}");
        }
        assert_eq!(profile.spent(Stage::Head), Duration::ZERO);
        let sum: Duration = Stage::ALL.iter().map(|stage| profile.spent(*stage)).sum();
        assert!(sum <= most, "{sum:?} of {most:?}");
    }

    #[test]
    fn a_stage_that_fails_ends() {
        let recorder = Recorder::new(Device::Cpu);
        recorder.start();
        let failing = || -> Result<(), ()> {
            let _timer = recorder.enter(Stage::Head);
            Err(())
        };
        let started = Instant::now();
        assert_eq!(failing(), Err(()));
        let most = started.elapsed();
        spin(STEP);
        recorder.time(Stage::Loss, || ());
        let profile = recorder.take().unwrap();
        assert!(profile.spent(Stage::Head) <= most, "{profile:?}");
    }

    #[test]
    fn a_profile_that_ends_within_a_stage_is_no_fault() {
        let recorder = Recorder::new(Device::Cpu);
        recorder.start();
        let timer = recorder.enter(Stage::Loss);
        assert!(recorder.take().is_some());
        drop(timer);
        assert_eq!(recorder.take(), None);
    }
}
