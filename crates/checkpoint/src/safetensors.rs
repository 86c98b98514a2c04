//! Headers of safetensors files.

use std::collections::BTreeMap;

use safetensors::tensor::{Metadata, TensorInfo};
use safetensors::{Dtype, SafeTensorError, SafeTensors};
use serde_json::{Map, Value};

use crate::CheckpointError;
use crate::tensor::{Format, StoredTensor, WeightDtype};

const LENGTH_BYTES: usize = 8;
const SUPPORTED: &str = "F32, F16, BF16";

/// The tensors of a safetensors file by name, those whose names `ignored` knows left out.
///
/// Nothing is allocated by a length the file claims, and every range lies inside of `bytes`.
pub(crate) fn read(
    file: usize,
    label: &str,
    bytes: &[u8],
    ignored: impl Fn(&str) -> bool,
) -> Result<Vec<(String, StoredTensor)>, CheckpointError> {
    let (header, metadata) = SafeTensors::read_metadata(bytes)
        .map_err(|error| CheckpointError::damaged(label, explain(&error, bytes)))?;
    let data = LENGTH_BYTES + header;
    // In the order of their names, so that of several faults the same one is told each time.
    let tensors: BTreeMap<_, _> = metadata.tensors().into_iter().collect();
    tensors
        .into_iter()
        .filter(|(name, _)| !ignored(name))
        .map(|(name, info)| {
            let dtype = match info.dtype {
                Dtype::F32 => WeightDtype::F32,
                Dtype::F16 => WeightDtype::F16,
                Dtype::BF16 => WeightDtype::Bf16,
                other => {
                    return Err(CheckpointError::UnsupportedDtype {
                        file: label.to_owned(),
                        tensor: name,
                        dtype: other.to_string(),
                        supported: SUPPORTED,
                    });
                }
            };
            let (start, end) = info.data_offsets;
            let tensor = StoredTensor {
                file,
                bytes: data + start..data + end,
                shape: info.shape.clone(),
                format: Format::Plain(dtype),
            };
            Ok((name, tensor))
        })
        .collect()
}

/// The sentence behind an error of the safetensors crate, which rarely names the tensor.
fn explain(error: &SafeTensorError, bytes: &[u8]) -> String {
    let size = bytes.len();
    match error {
        SafeTensorError::HeaderTooSmall => {
            format!("it has {size} bytes, too few for a safetensors header")
        }
        SafeTensorError::HeaderTooLarge | SafeTensorError::InvalidHeaderLength => {
            let claimed = claimed_length(bytes).unwrap_or_default();
            format!("its header claims {claimed} bytes, the file has {size}")
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            format!(
                "its {size} bytes are not what its header describes, so it was cut off or added to"
            )
        }
        SafeTensorError::InvalidOffset(name) => {
            format!("tensor `{name}` overlaps another tensor or leaves a gap before it")
        }
        other => match first_bad_tensor(bytes) {
            Some((name, cause)) => format!("tensor `{name}`: {cause}"),
            None => other.to_string(),
        },
    }
}

fn claimed_length(bytes: &[u8]) -> Option<u64> {
    bytes
        .first_chunk::<LENGTH_BYTES>()
        .map(|length| u64::from_le_bytes(*length))
}

/// Tries the header's tensors one at a time.
fn first_bad_tensor(bytes: &[u8]) -> Option<(String, String)> {
    let length = usize::try_from(claimed_length(bytes)?).ok()?;
    let header = bytes.get(LENGTH_BYTES..LENGTH_BYTES.checked_add(length)?)?;
    let tensors: Map<String, Value> = serde_json::from_slice(header).ok()?;
    tensors
        .into_iter()
        .filter(|(name, _)| name != "__metadata__")
        .find_map(|(name, value)| {
            let mut info: TensorInfo = match serde_json::from_value(value) {
                Ok(info) => info,
                Err(error) => return Some((name, error.to_string())),
            };
            let (start, end) = info.data_offsets;
            let Some(length) = end.checked_sub(start) else {
                return Some((
                    name,
                    format!("it ends at {end}, before it starts at {start}"),
                ));
            };
            let described = format!(
                "its {length} bytes do not hold shape {:?} of {}",
                info.shape, info.dtype
            );
            info.data_offsets = (0, length);
            match Metadata::new(None, vec![(name.clone(), info)]) {
                Ok(_) => None,
                Err(_) => Some((name, described)),
            }
        })
}
