//! The decoder: embedding, blocks, head, loss.

use assay_api::Dtype;
use assay_checkpoint::{Architecture, Checkpoint, Place, Positions, Slot};
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::{Batch, Sequence, signed};
use crate::layer::{Layer, Scratch};
use crate::loss::nll;
use crate::memory::Activations;
use crate::norm::Norm;
use crate::profile::{Profile, Recorder, Stage};
use crate::rope::{Frequencies, Rotation};
use crate::torch::{Output, linear};
use crate::weights::{Linear, Loader};

/// The fewest rows of a matrix product. With fewer, libtorch's libraries choose other kernels,
/// and a row's bits would depend on how many rows are computed with it.
pub const MIN_GEMM_ROWS: usize = 256;
/// Rows of every product with the head. Logits exist for this many rows at a time:
/// `HEAD_ROWS * vocab_size` numbers.
pub const HEAD_ROWS: usize = 256;

/// A model on a device.
pub struct Decoder {
    architecture: Architecture,
    kind: Kind,
    device: Device,
    /// `[vocab_size, embedding]`
    embedding: Tensor,
    /// `[max_positions, hidden]`, where positions are learned.
    positions: Option<Tensor>,
    /// From the width of the embedding to that of the residual stream, where they differ, and back.
    projections: Option<(Linear, Linear)>,
    layers: Vec<Layer>,
    final_norm: Option<Norm>,
    /// `[vocab_size, embedding]`; the embedding itself when tied.
    head: Linear,
    /// Of the rotary embeddings, where there are any.
    frequencies: Vec<Frequencies>,
    recorder: Recorder,
}

/// libtorch's name of a dtype.
pub(crate) fn kind_of(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::Float32 => Kind::Float,
        Dtype::Bfloat16 => Kind::BFloat16,
    }
}

impl Decoder {
    /// Loads the weights of `checkpoint`, converted to `dtype`, to `device`.
    ///
    /// # Errors
    /// When a weight cannot be read, or the device has too little memory.
    pub fn load(
        checkpoint: &Checkpoint,
        dtype: Dtype,
        device: Device,
    ) -> Result<Self, DecoderError> {
        let _guard = tch::no_grad_guard();
        let architecture = checkpoint.architecture();
        let kind = kind_of(dtype);
        let loader = Loader {
            checkpoint,
            kind,
            device,
        };
        let at = Slot::model;
        let embedding = loader.one(at(Place::Embedding))?;
        let positions = match architecture.positions {
            Positions::Learned => Some(loader.one(at(Place::Positions))?),
            _ => None,
        };
        let projections = if architecture.embedding_size == architecture.hidden_size {
            None
        } else {
            let project = |place| loader.linear(at(place));
            Some((project(Place::ProjectIn)?, project(Place::ProjectOut)?))
        };
        let layers = (0..architecture.blocks.len())
            .map(|index| Layer::load(&loader, architecture, index))
            .collect::<Result<_, _>>()?;
        let final_norm = if architecture.final_norm {
            Some(loader.norm(at(Place::FinalNorm), None)?)
        } else {
            None
        };
        let head = if architecture.tied_head {
            loader.with_bias(embedding.shallow_clone(), at(Place::Head))?
        } else {
            loader.linear(at(Place::Head))?
        };
        Ok(Self {
            architecture: architecture.clone(),
            kind,
            device,
            embedding,
            positions,
            projections,
            layers,
            final_norm,
            head,
            frequencies: architecture
                .ropes()
                .iter()
                .map(|rope| Frequencies::new(rope, device))
                .collect::<Result<_, _>>()?,
            recorder: Recorder::new(device),
        })
    }

    /// The negative log-likelihood in nats of every target, one list per sequence.
    ///
    /// Each sequence is a window of its own, its first input at position 0. A value is NaN where
    /// the model's output is not a number.
    ///
    /// # Errors
    /// When a sequence is not one of this model, or libtorch fails; when the device runs out of
    /// memory, all memory of the call is free again.
    pub fn score(&self, micro_batch: &[Sequence]) -> Result<Vec<Vec<f64>>, DecoderError> {
        let _guard = tch::no_grad_guard();
        let vocab_size = self.architecture.vocab_size;
        let batch = Batch::new(micro_batch, vocab_size)?;
        let mut values = Vec::with_capacity(batch.targets.len());
        if !batch.targets.is_empty() {
            let outputs = self.outputs(&batch)?;
            let mut logits = Tensor::f_empty(
                [signed(HEAD_ROWS), signed(vocab_size)],
                (self.kind, self.device),
            )?;
            for (rows, targets) in batch
                .counted
                .chunks(HEAD_ROWS)
                .zip(batch.targets.chunks(HEAD_ROWS))
            {
                values.extend(self.head(&outputs, rows, targets, &mut logits)?);
            }
        }
        let rows = micro_batch.iter().map(|window| window.input.len()).sum();
        self.recorder.scored(rows);
        Ok(batch.by_sequence(&values, micro_batch))
    }

    /// From now on measures where the time of [`Decoder::score`] goes. A GPU is waited for at the
    /// bounds of each stage, so that it computes a little slower.
    pub fn start_profile(&self) {
        self.recorder.start();
    }

    /// What was measured since [`Decoder::start_profile`]. None if nothing is measured.
    pub fn take_profile(&self) -> Option<Profile> {
        self.recorder.take()
    }

    /// Bytes of memory that [`Decoder::score`] takes at most beside the weights, for windows of
    /// these numbers of inputs, all of which may count.
    ///
    /// An estimate from above, by about a half: what libtorch allocates at its peak, and what the
    /// allocator cannot use. Pages of libtorch's own code are not in it.
    pub fn memory_needed(&self, windows: impl Iterator<Item = usize>) -> u64 {
        Activations {
            architecture: &self.architecture,
            number: self.kind.elt_size_in_bytes() as u64,
            // libtorch's fused kernels take float32 on CUDA only where each query head has its
            // own keys.
            scores: self.device.is_cuda()
                && self.kind == Kind::Float
                && self.architecture.heads != self.architecture.kv_heads,
        }
        .peak(windows)
    }

    /// Computes the matrix products of a micro-batch of `rows` tokens, all counted, and nothing
    /// else: the floor under the time of [`Decoder::score`], to measure it against.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn products(&self, rows: usize) -> Result<(), DecoderError> {
        let _guard = tch::no_grad_guard();
        let options = (self.kind, self.device);
        let (vocab_size, width) = self.head.weight.size2()?;
        let hidden = signed(self.architecture.hidden_size);
        let mut x = Tensor::f_zeros([signed(rows.max(MIN_GEMM_ROWS)), hidden], options)?;
        let mut scratch = Scratch::new(&x, &self.layers)?;
        for layer in &self.layers {
            layer.products(&mut x, &mut scratch)?;
        }
        let x = Tensor::f_zeros([signed(HEAD_ROWS), width], options)?;
        let mut logits = Tensor::f_empty([signed(HEAD_ROWS), vocab_size], options)?;
        for _ in 0..rows.div_ceil(HEAD_ROWS) {
            linear(&x, &self.head.weight, &mut logits, Output::Replace)?;
        }
        Ok(())
    }

    /// The residual stream after the last block, `[rows, hidden]`.
    fn outputs(&self, batch: &Batch) -> Result<Tensor, DecoderError> {
        let ids = Tensor::f_from_slice(&batch.ids)?.f_to_device(self.device)?;
        let positions = Tensor::f_from_slice(&batch.positions)?.f_to_device(self.device)?;
        let rotations = self
            .frequencies
            .iter()
            .map(|frequencies| frequencies.rotation(batch, &positions, self.kind))
            .collect::<Result<Vec<Rotation>, _>>()?;
        let mut x = self
            .recorder
            .time(Stage::Embedding, || self.embedded(&ids, &positions))?;
        let mut scratch = Scratch::new(&x, &self.layers)?;
        for layer in &self.layers {
            layer.forward(&mut x, &rotations, &batch.groups, &mut scratch)?;
        }
        Ok(x)
    }

    /// What the first block reads, `[rows, hidden]`.
    fn embedded(&self, ids: &Tensor, positions: &Tensor) -> Result<Tensor, DecoderError> {
        let mut x = self.embedding.f_index_select(0, ids)?;
        let scale = self.architecture.scales.embedding;
        if is_not_one(scale) {
            let scale = if self.architecture.scales.rounds_embedding {
                let rounded = Tensor::from(scale).f_to_kind(self.kind)?;
                rounded.f_double_value(&[])?
            } else {
                scale
            };
            x = x.f_mul_scalar(scale)?;
        }
        if let Some((project, _)) = &self.projections {
            x = project.of(&x)?;
        }
        if let Some(vectors) = &self.positions {
            let positions = positions.f_to_kind(Kind::Int64)?;
            let _ = x.f_add_(&vectors.f_index_select(0, &positions)?)?;
        }
        Ok(x)
    }

    /// The loss of at most [`HEAD_ROWS`] rows; row 0 fills up the rest of the product.
    fn head(
        &self,
        outputs: &Tensor,
        rows: &[i64],
        targets: &[i64],
        logits: &mut Tensor,
    ) -> Result<Vec<f64>, DecoderError> {
        let mut padded = rows.to_vec();
        padded.resize(HEAD_ROWS, 0);
        let padded = Tensor::f_from_slice(&padded)?.f_to_device(self.device)?;
        let timer = self.recorder.enter(Stage::Head);
        let mut x = outputs.f_index_select(0, &padded)?;
        if let Some(norm) = &self.final_norm {
            x = self.recorder.time(Stage::Norm, || norm.apply(&x))?;
        }
        if let Some((_, project)) = &self.projections {
            x = project.of(&x)?;
        }
        self.head.apply(&x, logits, Output::Replace)?;
        let mut counted = logits.f_narrow(0, 0, signed(rows.len()))?;
        let scale = self.architecture.scales.logits;
        if is_not_one(scale) {
            let _ = counted.f_mul_scalar_(scale)?;
        }
        if let Some(cap) = self.architecture.softcaps.logits {
            let _ = counted.f_div_scalar_(cap)?.f_tanh_()?.f_mul_scalar_(cap)?;
        }
        drop(timer);
        let _timer = self.recorder.enter(Stage::Loss);
        let targets = Tensor::f_from_slice(targets)?.f_to_device(self.device)?;
        let nll = nll(&counted, &targets)?;
        Ok(Vec::try_from(nll)?)
    }
}

fn is_not_one(scale: f64) -> bool {
    scale.to_bits() != 1_f64.to_bits()
}
