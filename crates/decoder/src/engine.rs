//! What computes: kernels of our own on processors, libtorch elsewhere.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{fmt, fs};

use assay_api::Dtype;
use assay_kernels::{Cpu, Factor as _, Level, Space, Threads, bf16};
use tch::Device;

use crate::profile::Recorder;
use crate::{DecoderError, torch};

/// Who multiplies matrices on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// The kernels of this project for an instruction set.
    Own(Level),
    /// libtorch, and with it the attention.
    Libtorch,
}

impl Products {
    /// What is fastest here in a dtype. AMX is for libtorch alone: its instructions are not stable
    /// in Rust.
    pub fn best(dtype: Dtype) -> Self {
        if dtype == Dtype::Bfloat16 && has_amx() {
            return Self::Libtorch;
        }
        Self::available(dtype).pop().unwrap_or(Self::Libtorch)
    }

    /// All that this processor can, the fastest instruction set last.
    pub fn available(dtype: Dtype) -> Vec<Self> {
        let multiplies = match dtype {
            Dtype::Float32 => f32::multiplies,
            Dtype::Bfloat16 => bf16::multiplies,
        };
        let levels = Level::ALL.into_iter().filter(|level| level.is_available());
        let own = levels.filter(|level| multiplies(*level)).map(Self::Own);
        std::iter::once(Self::Libtorch).chain(own).collect()
    }
}

impl fmt::Display for Products {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(level) => level.fmt(f),
            Self::Libtorch => f.write_str("libtorch"),
        }
    }
}

fn has_amx() -> bool {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "amx_bf16"))
}

/// What computes a forward pass, and what measures it.
pub(crate) struct Engine {
    processor: Option<Processor>,
    pub(crate) recorder: Recorder,
}

struct Processor {
    products: Products,
    level: Level,
    pool: Pool,
    space: Space,
}

impl Engine {
    /// For the device, with the threads that libtorch has.
    pub(crate) fn new(
        device: Device,
        products: Products,
        head_dim: usize,
    ) -> Result<Self, DecoderError> {
        let processor = if device == Device::Cpu {
            let threads = usize::try_from(tch::get_num_threads()).unwrap_or(1).max(1);
            let space = Space::new(threads, head_dim)
                .map_err(|error| DecoderError::from_message(&format!("out of memory: {error}")))?;
            Some(Processor {
                products,
                level: match products {
                    Products::Own(level) => level,
                    Products::Libtorch => Level::best(),
                },
                pool: Pool { threads },
                space,
            })
        } else {
            None
        };
        Ok(Self {
            processor,
            recorder: Recorder::new(device),
        })
    }

    /// The processor, if that is the device.
    pub(crate) fn cpu(&self) -> Option<Cpu<'_>> {
        let Processor {
            level, pool, space, ..
        } = self.processor.as_ref()?;
        Some(Cpu {
            level: *level,
            threads: pool,
            space,
        })
    }

    /// The processor, if matrices are multiplied by kernels of our own.
    pub(crate) fn multiplies(&self) -> Option<Cpu<'_>> {
        let processor = self.processor.as_ref()?;
        if processor.products == Products::Libtorch {
            return None;
        }
        self.cpu()
    }
}

/// The threads of libtorch: there is one pool, so that none waits on a core that another computes
/// on.
struct Pool {
    threads: usize,
}

// SAFETY: numbers are handed out once, by a counter, to as many threads as there are; libtorch
// returns when all its threads have.
#[allow(unsafe_code)]
unsafe impl Threads for Pool {
    fn count(&self) -> usize {
        self.threads
    }

    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if self.threads == 1 || tasks < 2 {
            return (0..tasks).for_each(task);
        }
        let next = AtomicUsize::new(0);
        let panicked: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);
        // A panic must not cross libtorch's frames.
        torch::parallel(self.threads.min(tasks), &|| {
            let worked = catch_unwind(AssertUnwindSafe(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= tasks {
                        break;
                    }
                    task(index);
                }
            }));
            if let Err(panic) = worked {
                panicked
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get_or_insert(panic);
            }
        });
        if let Some(panic) = panicked
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
        {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime;

    #[test]
    fn every_task_runs_once_and_a_panic_comes_back() {
        for threads in [1, 2, 5] {
            std::thread::spawn(move || {
                runtime::init(threads).unwrap();
                let pool = Pool { threads };
                let counts: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
                pool.run(100, &|task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    counts
                        .iter()
                        .all(|count| count.load(Ordering::Relaxed) == 1)
                );
                let caught = catch_unwind(|| {
                    pool.run(10, &|task| assert!(task != 7, "task seven"));
                });
                assert!(caught.is_err(), "{threads}");
            })
            .join()
            .unwrap();
        }
    }
}
