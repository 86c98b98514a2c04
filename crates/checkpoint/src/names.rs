//! What weights are called in files, and how they lie there.

use std::borrow::Cow;
use std::iter;
use std::ops::Range;

use crate::{Architecture, Param, Place, Slot};

/// A place, what its weight is called, and how it lies there. `{expert}` and `{head}` in a name stand
/// for an index; `.weight` or `.bias` follows.
pub(crate) type Row = (Place, &'static str, Take);

/// The names of a family's weights in one file format. A place may have several names, of which a
/// file has one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameTable {
    /// What names of weights of a block start with; `{layer}` stands for its index.
    pub(crate) block: &'static str,
    /// Lists of names. Families share some of them.
    pub(crate) lists: &'static [&'static [Row]],
}

/// How a weight lies in the tensor of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Take {
    /// As the decoder wants it.
    Whole,
    /// `[in, out]`.
    Transposed,
    /// With those of other places, one below the other in this order.
    Stacked(&'static [Place]),
    /// The same, `[in, out]`, side by side.
    StackedTransposed(&'static [Place]),
    /// For each key head its query heads, itself, and its value head.
    Grouped,
    /// Numbers that are rotated against each other lie side by side in each head, not half a
    /// head apart.
    Pairs,
    /// Without the 1 that the norm adds.
    MinusOne,
    /// Below this many rows that the model does not use.
    Below(usize),
}

/// Wrappers that training tools leave in front of names of weights, one or several.
pub const NAME_PREFIXES: [&str; 8] = [
    "base_model.",
    "model.",
    "language_model.",
    "transformer.",
    "gpt_neox.",
    "decoder.",
    "module.",
    "text_model.",
];
/// Wrappers that training tools leave anywhere in names of weights.
pub const NAME_INFIXES: [&str; 3] = [
    "_orig_mod.",
    "_fsdp_wrapped_module.",
    "_checkpoint_wrapped_module.",
];

/// A name without the wrappers that differ from one training tool to the next.
pub(crate) fn bare(name: &str) -> Cow<'_, str> {
    let mut name = Cow::Borrowed(name);
    for infix in NAME_INFIXES {
        if name.contains(infix) {
            name = Cow::Owned(name.replace(infix, ""));
        }
    }
    let mut rest: &str = &name;
    while let Some(shorter) = NAME_PREFIXES
        .iter()
        .find_map(|prefix| rest.strip_prefix(prefix))
    {
        rest = shorter;
    }
    let stripped = name.len() - rest.len();
    match name {
        Cow::Borrowed(name) => Cow::Borrowed(&name[stripped..]),
        Cow::Owned(name) => Cow::Owned(name[stripped..].to_owned()),
    }
}

impl NameTable {
    /// What the weight of a place may be called, from the first name on, and how it lies there.
    pub(crate) fn of(self, place: Place) -> impl Iterator<Item = (String, Take)> + Clone {
        let rows = self.lists.iter().copied().flatten();
        let rows = rows.filter(move |(named, ..)| *named == place);
        rows.map(move |(_, name, take)| {
            let block = if place.is_in_block() { self.block } else { "" };
            (format!("{block}{name}"), *take)
        })
    }
}

/// The module that the weight of a slot is in; `{head}` stays in the name.
pub(crate) fn module_of(pattern: &str, slot: Slot) -> String {
    pattern
        .replace("{layer}", &slot.layer.to_string())
        .replace("{expert}", &slot.expert.to_string())
}

/// The names of the tensors that a slot is in, one or one for each head. One after the other: a
/// configuration may claim more heads than there are tensors.
pub(crate) fn tensors_of(
    pattern: &str,
    slot: Slot,
    heads: usize,
) -> impl Iterator<Item = String> + use<> {
    let suffix = match slot.param {
        Param::Weight => "weight",
        Param::Bias => "bias",
    };
    let module = module_of(pattern, slot);
    let heads = if module.contains(HEAD) { heads } else { 1 };
    (0..heads).map(move |head| format!("{}.{suffix}", module.replace(HEAD, &head.to_string())))
}

/// The name of the only tensor that a slot is in, or of the first.
pub(crate) fn tensor_of(pattern: &str, slot: Slot) -> String {
    tensors_of(pattern, slot, 1).next().unwrap_or_default()
}

/// What stands for the index of a head.
pub(crate) const HEAD: &str = "{head}";

/// Vectors have no columns to exchange with rows.
pub(crate) fn take_of(take: Take, shape: &[usize]) -> Take {
    match take {
        Take::Transposed if shape.len() == 1 => Take::Whole,
        Take::StackedTransposed(places) if shape.len() == 1 => Take::Stacked(places),
        _ => take,
    }
}

/// How a slot's weight is made of the rows of a stored tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Rows and columns are exchanged.
    pub(crate) transposed: bool,
    /// 1 is to be added.
    pub(crate) minus_one: bool,
    /// The rows of the stored tensor (its columns if transposed), in the order of the weight's.
    pub(crate) rows: Rows,
    /// Rows of the stored tensor (columns if transposed).
    pub(crate) stored_rows: usize,
}

/// Rows of a stored tensor. No list of them: their number is a claim until the tensor is found to
/// have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// These.
    Run(Range<usize>),
    /// Of each head those with even numbers, then the others.
    HalvesOfPairs { heads: usize, head_dim: usize },
    /// Of each group of `stride` rows some.
    OfGroups {
        groups: usize,
        stride: usize,
        rows: Range<usize>,
    },
}

impl Rows {
    /// The runs of rows, in the order of the weight's.
    pub(crate) fn runs(&self) -> Box<dyn Iterator<Item = Range<usize>>> {
        match self.clone() {
            Self::Run(rows) => Box::new(iter::once(rows)),
            Self::HalvesOfPairs { heads, head_dim } => Box::new(halves_of_pairs(heads, head_dim)),
            Self::OfGroups {
                groups,
                stride,
                rows,
            } => {
                let of = move |group| group * stride + rows.start..group * stride + rows.end;
                Box::new((0..groups).map(of))
            }
        }
    }
}

impl Layout {
    /// The layout of a slot whose weight has `rows` rows.
    pub(crate) fn new(architecture: &Architecture, place: Place, rows: usize, take: Take) -> Self {
        let plain = Self {
            transposed: false,
            minus_one: false,
            rows: Rows::Run(0..rows),
            stored_rows: rows,
        };
        match take {
            Take::Whole => plain,
            Take::Transposed => Self {
                transposed: true,
                ..plain
            },
            Take::MinusOne => Self {
                minus_one: true,
                ..plain
            },
            Take::Below(unused) => Self {
                rows: Rows::Run(unused..unused + rows),
                stored_rows: unused + rows,
                ..plain
            },
            Take::Pairs => Self {
                rows: Rows::HalvesOfPairs {
                    heads: rows / architecture.head_dim,
                    head_dim: architecture.head_dim,
                },
                ..plain
            },
            Take::Grouped => grouped(architecture, place, &plain),
            Take::Stacked(places) => stacked(architecture, place, places, &plain),
            Take::StackedTransposed(places) => Self {
                transposed: true,
                ..stacked(architecture, place, places, &plain)
            },
        }
    }
}

/// Row `h, j, i` of `[heads, 2, head_dim / 2]` is row `h, i, j` of `[heads, head_dim / 2, 2]`.
fn halves_of_pairs(heads: usize, head_dim: usize) -> impl Iterator<Item = Range<usize>> {
    let half = head_dim / 2;
    let row = move |head: usize, j: usize, i: usize| head * head_dim + 2 * i + j;
    (0..heads)
        .flat_map(move |head| (0..2).flat_map(move |j| (0..half).map(move |i| row(head, j, i))))
        .map(|row| row..row + 1)
}

fn grouped(architecture: &Architecture, place: Place, plain: &Layout) -> Layout {
    let Architecture {
        heads,
        kv_heads,
        head_dim,
        ..
    } = *architecture;
    let queries = heads / kv_heads;
    let (first, count) = match place {
        Place::Query => (0, queries),
        Place::Key => (queries, 1),
        _ => (queries + 1, 1),
    };
    Layout {
        rows: Rows::OfGroups {
            groups: kv_heads,
            stride: (queries + 2) * head_dim,
            rows: first * head_dim..(first + count) * head_dim,
        },
        stored_rows: (heads + 2 * kv_heads) * head_dim,
        ..*plain
    }
}

fn stacked(architecture: &Architecture, place: Place, all: &[Place], plain: &Layout) -> Layout {
    let rows = |place: &Place| architecture.shape(*place)[0];
    let before = all.iter().take_while(|other| **other != place);
    let start: usize = before.map(rows).sum();
    Layout {
        rows: Rows::Run(start..start + rows(&place)),
        stored_rows: all.iter().map(rows).sum(),
        ..*plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_stripped_and_nothing_else() {
        for (name, wanted) in [
            ("model.embed_tokens.weight", "embed_tokens.weight"),
            ("transformer.h.0.ln_1.bias", "h.0.ln_1.bias"),
            ("h.0.ln_1.bias", "h.0.ln_1.bias"),
            (
                "model.language_model.layers.3.mlp.up_proj.weight",
                "layers.3.mlp.up_proj.weight",
            ),
            (
                "_orig_mod.model.layers.0._checkpoint_wrapped_module.mlp.down_proj.weight",
                "layers.0.mlp.down_proj.weight",
            ),
            (
                "base_model.model.model.layers.0.mlp.down_proj.weight",
                "layers.0.mlp.down_proj.weight",
            ),
            ("vision_tower.model.x.weight", "vision_tower.model.x.weight"),
            ("blk.0.attn_q.weight", "blk.0.attn_q.weight"),
        ] {
            assert_eq!(bare(name), wanted);
        }
    }

    #[test]
    fn pairs_become_halves() {
        let rows: Vec<usize> = halves_of_pairs(2, 4).map(|r| r.start).collect();
        assert_eq!(rows, [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
