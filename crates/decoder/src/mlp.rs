//! The MLP of a block: one, or a mixture of experts.

use assay_checkpoint::{Activation, Architecture, Block, Experts, Place, Slot};
use assay_kernels::After;
use tch::{Device, Kind, Tensor};

use crate::DecoderError;
use crate::batch::signed;
use crate::engine::Engine;
use crate::linear::{Linear, space};
use crate::profile::Stage;
use crate::torch::Output;
use crate::view::{rows_mut, with_element};
use crate::weights::Loader;

/// Projections with an activation between them.
pub(crate) struct Dense {
    activation: Activation,
    gated: bool,
    /// Gate and up, `[2 * intermediate, hidden]`, or up alone.
    pub(crate) up: Linear,
    pub(crate) down: Linear,
    /// What is done with the first product while it is made.
    fused: Option<assay_kernels::After>,
}

/// Many MLPs, of which each token passes through some.
pub(crate) struct Mixture {
    experts: Experts,
    pub(crate) router: Linear,
    pub(crate) members: Vec<Dense>,
}

/// The choices of all rows, `[rows * per_token]`, those of a row in the order of the experts.
struct Chosen {
    /// Index of the expert.
    experts: Tensor,
    /// What its output is multiplied by.
    shares: Tensor,
    /// The choices in the order of the experts.
    order: Tensor,
}

/// What a block has for an MLP.
pub(crate) enum Mlp {
    Dense(Dense),
    Mixture(Mixture),
}

impl Mlp {
    pub(crate) fn load(
        loader: &Loader<'_>,
        architecture: &Architecture,
        layer: usize,
        block: Block,
    ) -> Result<Self, DecoderError> {
        let at = |place| Slot::block(layer, place);
        let dense = |gate: Slot, up: Slot, down: Slot, gated: bool| {
            let kernel = kernel(architecture.activation);
            let up = match (gated, kernel) {
                (false, _) => loader.linear(up)?,
                (true, None) => loader.linears(&[gate, up])?,
                (true, Some(_)) => loader.gated(gate, up)?,
            };
            let after = if gated { After::Gate } else { After::Activate };
            Ok::<_, DecoderError>(Dense {
                activation: architecture.activation,
                gated,
                fused: kernel.filter(|_| up.is_fused()).map(after),
                up,
                down: loader.linear(down)?,
            })
        };
        let Some(experts) = architecture.experts.filter(|_| block.experts) else {
            let (gate, up, down) = (at(Place::Gate), at(Place::Up), at(Place::Down));
            return dense(gate, up, down, architecture.gated).map(Self::Dense);
        };
        let member = |index: usize| {
            let of = |place| at(place).of_expert(index);
            dense(
                of(Place::ExpertGate),
                of(Place::ExpertUp),
                of(Place::ExpertDown),
                true,
            )
        };
        Ok(Self::Mixture(Mixture {
            experts,
            router: loader.linear(at(Place::Router))?,
            members: (0..experts.count).map(member).collect::<Result<_, _>>()?,
        }))
    }
}

impl Dense {
    /// Space for what [`Dense::inner`] writes for so many rows.
    pub(crate) fn space(&self, rows: i64, options: (Kind, Device)) -> Result<Tensor, DecoderError> {
        let (outputs, _) = self.up.size()?;
        let (_, inner) = self.down.size()?;
        space(
            rows,
            if self.fused.is_some() { inner } else { outputs },
            options,
        )
    }

    /// What the down projection reads, a view of `space`.
    pub(crate) fn inner(
        &self,
        x: &Tensor,
        space: &mut Tensor,
        engine: &Engine,
    ) -> Result<Tensor, DecoderError> {
        if let Some(after) = self.fused {
            self.up.multiply(x, space, after, engine)?;
            return Ok(space.shallow_clone());
        }
        self.up.apply(x, space, Output::Replace, engine)?;
        let _timer = engine.recorder.enter(Stage::Activation);
        let (_, inner) = self.down.size()?;
        let mut gate = space.f_narrow(1, 0, inner)?;
        if let (Some(cpu), Some(activation)) = (engine.cpu(), kernel(self.activation)) {
            let inner = usize::try_from(inner).unwrap_or(0);
            with_element!(space.f_kind()?, T => {
                activation.apply(cpu, rows_mut::<T>(space)?, inner);
                Ok(())
            })?;
            return Ok(gate);
        }
        self.activate(&mut gate)?;
        if self.gated {
            let _ = gate.f_mul_(&space.f_narrow(1, inner, inner)?)?;
        }
        Ok(gate)
    }

    fn activate(&self, x: &mut Tensor) -> Result<(), DecoderError> {
        let _ = match self.activation {
            Activation::Silu => x.f_silu_()?,
            Activation::Gelu => x.f_gelu_("none")?,
            Activation::GeluTanh => x.f_gelu_("tanh")?,
            Activation::Relu => x.f_relu_()?,
        };
        Ok(())
    }
}

/// The kernel of an activation, if there is one.
fn kernel(activation: Activation) -> Option<assay_kernels::Activation> {
    match activation {
        Activation::Silu => Some(assay_kernels::Activation::Silu),
        Activation::GeluTanh => Some(assay_kernels::Activation::GeluTanh),
        Activation::Relu => Some(assay_kernels::Activation::Relu),
        Activation::Gelu => None,
    }
}

impl Mixture {
    /// The output for each row of `x`, `[rows, hidden]`.
    ///
    /// Rows are grouped by expert, so that each expert is one product over the rows it gets. How
    /// many these are depends on the micro-batch alone, which the plan fixes; so they are not
    /// padded as other products are, which would cost more than it gives. The host waits for the
    /// device once, for the numbers of rows.
    pub(crate) fn of(&self, x: &Tensor, engine: &Engine) -> Result<Tensor, DecoderError> {
        let kind = x.f_kind()?;
        let (rows, hidden) = x.size2()?;
        let Chosen {
            experts,
            shares,
            order,
        } = self.choose(x, engine)?;
        let most = signed(self.experts.per_token);
        let count = signed(self.experts.count);
        let numbers = experts.f_bincount(None::<Tensor>, count)?;
        let numbers: Vec<i64> = Vec::try_from(numbers)?;
        let from = order.f_divide_scalar_mode(most, "floor")?;
        let shares = shares.f_index_select(0, &order)?.f_unsqueeze(1)?;
        let outputs = Tensor::f_empty([rows * most, hidden], (kind, x.device()))?;
        let mut start = 0;
        for (number, member) in numbers.into_iter().zip(&self.members) {
            if number == 0 {
                continue;
            }
            let input = x.f_index_select(0, &from.f_narrow(0, start, number)?)?;
            let mut space = member.space(number, (kind, x.device()))?;
            let inner = member.inner(&input, &mut space, engine)?;
            let mut output = outputs.f_narrow(0, start, number)?;
            member
                .down
                .apply(&inner, &mut output, Output::Replace, engine)?;
            let _ = output.f_mul_(&shares.f_narrow(0, start, number)?)?;
            start += number;
        }
        // Where each choice of each row went; a row's experts are added in their order.
        let places = order.f_argsort(0, false)?.f_view([rows, most])?;
        let mut total = x.f_zeros_like()?;
        for choice in 0..most {
            let _ = total.f_add_(&outputs.f_index_select(0, &places.f_select(1, choice)?)?)?;
        }
        Ok(total)
    }

    /// Which experts compute which rows.
    fn choose(&self, x: &Tensor, engine: &Engine) -> Result<Chosen, DecoderError> {
        let chances = self.router.of(x, engine)?.f_softmax(-1, Kind::Float)?;
        let most = signed(self.experts.per_token);
        let (mut shares, experts) = chances.f_topk(most, -1, true, true)?;
        if self.experts.normalised {
            let sum = shares.f_sum_dim_intlist(-1, true, Kind::Float)?;
            shares = shares.f_div(&sum)?;
        }
        let (experts, by_expert) = experts.f_sort(-1, false)?;
        let shares = shares
            .f_gather(1, &by_expert, false)?
            .f_to_kind(x.f_kind()?)?;
        let experts = experts.f_view([-1])?;
        let order = experts.f_argsort_stable(true, 0, false)?;
        Ok(Chosen {
            experts,
            shares: shares.f_view([-1])?,
            order,
        })
    }

    /// Its products with `rows` rows, spread evenly, and the rows of each.
    pub(crate) fn linears(&self, rows: i64) -> Vec<(&Linear, i64)> {
        let Experts {
            count, per_token, ..
        } = self.experts;
        let each = (rows * signed(per_token))
            .div_euclid(signed(count))
            .clamp(1, rows.max(1));
        let members = self
            .members
            .iter()
            .flat_map(|member| [&member.up, &member.down]);
        let members = members.map(|linear| (linear, each));
        std::iter::once((&self.router, rows))
            .chain(members)
            .collect()
    }
}
