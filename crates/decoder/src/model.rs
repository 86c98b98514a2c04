//! The decoder: embedding, blocks, head, loss.

use assay_api::Dtype;
use assay_checkpoint::{Checkpoint, Slot};
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::{Batch, Sequence, signed};
use crate::layer::{Layer, Scratch, Sizes};
use crate::loss::nll;
use crate::memory::Shape;
use crate::norm::rms_norm;
use crate::rope::Rotation;
use crate::torch::{Output, linear};
use crate::weights::Loader;

/// The fewest rows of a matrix product. With fewer, libtorch's libraries choose other kernels,
/// and a row's bits would depend on how many rows are computed with it.
pub const MIN_GEMM_ROWS: usize = 256;
/// Rows of every product with the head. Logits exist for this many rows at a time:
/// `HEAD_ROWS * vocab_size` numbers.
pub const HEAD_ROWS: usize = 256;

/// A model on a device.
pub struct Decoder {
    sizes: Sizes,
    vocab_size: usize,
    kind: Kind,
    device: Device,
    /// `[vocab_size, hidden]`
    embedding: Tensor,
    layers: Vec<Layer>,
    final_norm: Tensor,
    /// `[vocab_size, hidden]`; the embedding itself when tied.
    head: Tensor,
    /// `[head_dim / 2]`, float32, radians per token.
    frequencies: Tensor,
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
        let embedding = loader.one(Slot::Embedding)?;
        let layers = (0..architecture.layers)
            .map(|index| Layer::load(&loader, architecture, index))
            .collect::<Result<_, _>>()?;
        let head = if architecture.tied_head {
            embedding.shallow_clone()
        } else {
            loader.one(Slot::Head)?
        };
        let frequencies = architecture.rope.frequencies(architecture.head_dim);
        Ok(Self {
            sizes: Sizes::of(architecture),
            vocab_size: architecture.vocab_size,
            kind,
            device,
            embedding,
            layers,
            final_norm: loader.one(Slot::FinalNorm)?,
            head,
            frequencies: Tensor::f_from_slice(&frequencies)?.f_to_device(device)?,
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
        let batch = Batch::new(micro_batch, self.vocab_size)?;
        let mut values = Vec::with_capacity(batch.targets.len());
        if !batch.targets.is_empty() {
            let outputs = self.outputs(&batch)?;
            let mut logits = Tensor::f_empty(
                [signed(HEAD_ROWS), signed(self.vocab_size)],
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
        Ok(batch.by_sequence(&values, micro_batch))
    }

    /// Bytes of memory that [`Decoder::score`] takes at most beside the weights, for windows of
    /// these numbers of inputs, all of which may count.
    ///
    /// An estimate from above, by about a half: what libtorch allocates at its peak, and what the
    /// allocator cannot use. Pages of libtorch's own code are not in it.
    pub fn memory_needed(&self, windows: impl Iterator<Item = usize>) -> u64 {
        self.shape().activations(windows)
    }

    fn shape(&self) -> Shape {
        let Sizes {
            heads,
            kv_heads,
            head_dim,
            intermediate,
            ..
        } = self.sizes;
        let hidden = self.final_norm.numel() as u64;
        let of = i64::unsigned_abs;
        Shape {
            number: self.kind.elt_size_in_bytes() as u64,
            hidden,
            intermediate: of(intermediate),
            heads: of(heads),
            kv_heads: of(kv_heads),
            head_dim: of(head_dim),
            vocab_size: self.vocab_size as u64,
            // libtorch's fused kernels take float32 on CUDA only where each query head has its
            // own keys.
            scores: self.device.is_cuda() && self.kind == Kind::Float && heads != kv_heads,
        }
    }

    /// Computes the matrix products of a micro-batch of `rows` tokens, all counted, and nothing
    /// else: the floor under the time of [`Decoder::score`], to measure it against.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn products(&self, rows: usize) -> Result<(), DecoderError> {
        let _guard = tch::no_grad_guard();
        let options = (self.kind, self.device);
        let (vocab_size, hidden) = self.head.size2()?;
        let mut x = Tensor::f_zeros([signed(rows.max(MIN_GEMM_ROWS)), hidden], options)?;
        let mut scratch = Scratch::new(&x, self.sizes)?;
        for layer in &self.layers {
            layer.products(&mut x, &mut scratch)?;
        }
        let x = Tensor::f_zeros([signed(HEAD_ROWS), hidden], options)?;
        let mut logits = Tensor::f_empty([signed(HEAD_ROWS), vocab_size], options)?;
        for _ in 0..rows.div_ceil(HEAD_ROWS) {
            linear(&x, &self.head, &mut logits, Output::Replace)?;
        }
        Ok(())
    }

    /// The residual stream after the last block, `[rows, hidden]`.
    fn outputs(&self, batch: &Batch) -> Result<Tensor, DecoderError> {
        let ids = Tensor::f_from_slice(&batch.ids)?.f_to_device(self.device)?;
        let positions = Tensor::f_from_slice(&batch.positions)?.f_to_device(self.device)?;
        let rotation = Rotation::new(&positions, &self.frequencies, self.kind)?;
        let mut x = self.embedding.f_index_select(0, &ids)?;
        let mut scratch = Scratch::new(&x, self.sizes)?;
        for layer in &self.layers {
            layer.forward(&mut x, self.sizes, &rotation, &batch.groups, &mut scratch)?;
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
        let x = outputs.f_index_select(0, &padded)?;
        let x = rms_norm(&x, &self.final_norm, self.sizes.norm_eps)?;
        linear(&x, &self.head, logits, Output::Replace)?;
        let targets = Tensor::f_from_slice(targets)?.f_to_device(self.device)?;
        let nll = nll(&logits.f_narrow(0, 0, signed(rows.len()))?, &targets)?;
        Ok(Vec::try_from(nll)?)
    }
}
