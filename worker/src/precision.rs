//! The dtype that a device computes a job in.

use std::collections::HashSet;

use assay_api::{Dtype, JobId, Numerics};
use assay_decoder::runtime::is_faster;

use crate::resources::JobResources;

/// The dtypes that a worker is told to count as fast; by default they are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastDtypes(Vec<Dtype>);

impl std::str::FromStr for FastDtypes {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, String> {
        let known = |name: &str| Dtype::ALL.iter().find(|dtype| dtype.as_str() == name);
        list.split(',')
            .map(|name| {
                known(name.trim()).copied().ok_or_else(|| {
                    let all: Vec<_> = Dtype::ALL.iter().map(|dtype| dtype.as_str()).collect();
                    format!("{name:?} is no dtype: write {}", all.join(","))
                })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Jobs that are remembered to be compared; one that is forgotten is compared once more.
const REMEMBERED: usize = 1024;

/// What a device knows of its dtypes, on its own thread.
pub(crate) struct Precision {
    device: tch::Device,
    given: Option<FastDtypes>,
    /// Whether bfloat16 is faster here than float32, once it was asked.
    bfloat16: Option<bool>,
    /// Jobs of which a part was scored in the job's dtype and in the device's own.
    compared: HashSet<JobId>,
}

impl Precision {
    /// Of a device.
    pub(crate) fn new(device: tch::Device, given: Option<FastDtypes>) -> Self {
        Self {
            device,
            given,
            bfloat16: None,
            compared: HashSet::new(),
        }
    }

    /// What this device computes the job in: the job's dtype, or float32 if that may be and is
    /// faster here.
    pub(crate) fn dtype(&mut self, job: &JobResources) -> Dtype {
        if job.numerics == Numerics::Uniform || self.is_fast(job.dtype) {
            return job.dtype;
        }
        Dtype::Float32
    }

    fn is_fast(&mut self, dtype: Dtype) -> bool {
        if dtype == Dtype::Float32 {
            return true;
        }
        if let Some(FastDtypes(given)) = &self.given {
            return given.contains(&dtype);
        }
        let device = self.device;
        *self.bfloat16.get_or_insert_with(|| {
            // A dtype that a device cannot compute in is not fast.
            is_faster(dtype, device).unwrap_or_else(|error| {
                tracing::warn!(dtype = dtype.as_str(), %error, "cannot be measured; float32 it is");
                false
            })
        })
    }

    /// Whether a part of the next shard of the job is to be scored in both dtypes, which this is
    /// the only time for.
    pub(crate) fn compares(&mut self, job: JobId) -> bool {
        if self.compared.len() >= REMEMBERED {
            self.compared.clear();
        }
        self.compared.insert(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_dtypes_are_parsed() {
        let both = FastDtypes(vec![Dtype::Float32, Dtype::Bfloat16]);
        assert_eq!("float32, bfloat16".parse(), Ok(both));
        let error = "float32,half".parse::<FastDtypes>().unwrap_err();
        assert!(
            error.contains("\"half\"") && error.contains("bfloat16"),
            "{error}"
        );
    }

    #[test]
    fn what_is_given_is_not_measured() {
        for (list, fast) in [("float32", false), ("float32,bfloat16", true)] {
            let mut precision = Precision::new(tch::Device::Cpu, Some(list.parse().unwrap()));
            assert_eq!(precision.is_fast(Dtype::Bfloat16), fast);
            assert!(precision.is_fast(Dtype::Float32));
        }
    }
}
