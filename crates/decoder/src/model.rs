//! The decoder: embedding, blocks, head, loss.

use assay_api::Dtype;
use assay_checkpoint::{Architecture, Checkpoint, Place, Positions, Slot};
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::{Batch, Sequence, signed};
use crate::engine::{Engine, Products};
use crate::head::Head;
use crate::layer::{Layer, Scratch};
use crate::linear::{Linear, Weight};
use crate::memory::Activations;
use crate::profile::{Profile, Stage};
use crate::rope::{Frequencies, Rotation};
use crate::torch;
use crate::weights::Loader;

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
    embedding: Weight,
    /// `[max_positions, hidden]`, where positions are learned.
    positions: Option<Tensor>,
    /// From the width of the embedding to that of the residual stream, where they differ.
    project: Option<Linear>,
    layers: Vec<Layer>,
    head: Head,
    /// Of the rotary embeddings, where there are any.
    frequencies: Vec<Frequencies>,
    engine: Engine,
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
        Self::load_with(checkpoint, dtype, device, Products::best(dtype))
    }

    /// As [`Decoder::load`], with a choice of who multiplies matrices if the device is a processor.
    /// The calling thread is the one that will score.
    ///
    /// # Errors
    /// As [`Decoder::load`].
    pub fn load_with(
        checkpoint: &Checkpoint,
        dtype: Dtype,
        device: Device,
        products: Products,
    ) -> Result<Self, DecoderError> {
        let _guard = tch::no_grad_guard();
        let architecture = checkpoint.architecture();
        let kind = kind_of(dtype);
        let engine = Engine::new(device, products, architecture.head_dim)?;
        let panels = engine.multiplies().is_some();
        let loader = Loader {
            checkpoint,
            kind,
            device,
            panels,
        };
        let at = Slot::model;
        let embedding = if architecture.tied_head {
            loader.shared(at(Place::Embedding))?
        } else {
            Weight::Rows(loader.one(at(Place::Embedding))?)
        };
        let positions = match architecture.positions {
            Positions::Learned => Some(loader.one(at(Place::Positions))?),
            _ => None,
        };
        let projects = architecture.embedding_size != architecture.hidden_size;
        let project = |place| projects.then(|| loader.linear(at(place))).transpose();
        Ok(Self {
            architecture: architecture.clone(),
            kind,
            device,
            positions,
            project: project(Place::ProjectIn)?,
            layers: (0..architecture.blocks.len())
                .map(|index| Layer::load(&loader, architecture, index))
                .collect::<Result<_, _>>()?,
            head: Head {
                norm: architecture
                    .final_norm
                    .then(|| loader.norm(at(Place::FinalNorm), None))
                    .transpose()?,
                project: project(Place::ProjectOut)?,
                linear: if architecture.tied_head {
                    loader.with_bias(embedding.shared(), at(Place::Head))?
                } else {
                    loader.linear(at(Place::Head))?
                },
                vocab_size: architecture.vocab_size,
                scale: architecture.scales.logits,
                softcap: architecture.softcaps.logits,
            },
            embedding,
            frequencies: architecture
                .ropes()
                .iter()
                .map(|rope| Frequencies::new(rope, device))
                .collect::<Result<_, _>>()?,
            engine,
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
        let batch = Batch::new(micro_batch, self.architecture.vocab_size)?;
        let mut values = Vec::new();
        if !batch.targets.is_empty() {
            let outputs = self.outputs(&batch)?;
            values = self.head.nll(&outputs, &batch, &self.engine)?;
        }
        let rows = micro_batch.iter().map(|window| window.input.len()).sum();
        self.engine.recorder.scored(rows);
        Ok(batch.by_sequence(&values, micro_batch))
    }

    /// From now on measures where the time of [`Decoder::score`] goes. A GPU is waited for at the
    /// bounds of each stage, so that it computes a little slower.
    pub fn start_profile(&self) {
        self.engine.recorder.start();
    }

    /// What was measured since [`Decoder::start_profile`]. None if nothing is measured.
    pub fn take_profile(&self) -> Option<Profile> {
        self.engine.recorder.take()
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
            processor: self.engine.cpu().is_some(),
            own: self.engine.multiplies().is_some(),
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
        let all = signed(rows.max(MIN_GEMM_ROWS));
        let linears = self.layers.iter().flat_map(|layer| layer.linears(all));
        let linears: Vec<(&Linear, i64)> = linears.collect();
        let widths = |pick: fn((i64, i64)) -> i64| -> Result<i64, DecoderError> {
            let mut widths = linears.iter().map(|(linear, _)| linear.width().map(pick));
            widths.try_fold(0, |widest, width| Ok(widest.max(width?)))
        };
        let (outputs, inputs) = (widths(|size| size.0)?, widths(|size| size.1)?);
        let x = Tensor::f_zeros([all * inputs], options)?;
        let out = Tensor::f_empty([all * outputs], options)?;
        for (linear, rows) in linears {
            let (outputs, inputs) = linear.width()?;
            let x = x.f_narrow(0, 0, rows * inputs)?.f_view([rows, inputs])?;
            let mut out = out
                .f_narrow(0, 0, rows * outputs)?
                .f_view([rows, outputs])?;
            linear.product_alone(&x, &mut out, &self.engine)?;
        }
        self.head.products(rows, options, &self.engine)
    }

    /// The residual stream after the last block, `[rows, hidden]`.
    fn outputs(&self, batch: &Batch) -> Result<Tensor, DecoderError> {
        let ids = torch::upload(&batch.ids, self.device)?;
        let positions = torch::upload(&batch.positions, self.device)?;
        let rotations = self
            .frequencies
            .iter()
            .map(|frequencies| frequencies.rotation(batch, &positions, self.kind, &self.engine))
            .collect::<Result<Vec<Rotation>, _>>()?;
        let mut x = self
            .engine
            .recorder
            .time(Stage::Embedding, || self.embedded(&ids, &positions))?;
        let mut scratch = Scratch::new(&x, &batch.groups, &self.layers, &self.engine)?;
        for layer in &self.layers {
            layer.forward(
                &mut x,
                &rotations,
                &batch.groups,
                &mut scratch,
                &self.engine,
            )?;
        }
        Ok(x)
    }

    /// What the first block reads, `[rows, hidden]`.
    fn embedded(&self, ids: &Tensor, positions: &Tensor) -> Result<Tensor, DecoderError> {
        let mut x = self.embedding.select(ids)?;
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
        if let Some(project) = &self.project {
            x = project.of(&x, &self.engine)?;
        }
        if let Some(vectors) = &self.positions {
            let positions = positions.f_to_kind(Kind::Int64)?;
            let _ = x.f_add_(&vectors.f_index_select(0, &positions)?)?;
        }
        Ok(x)
    }
}

fn is_not_one(scale: f64) -> bool {
    scale.to_bits() != 1_f64.to_bits()
}
