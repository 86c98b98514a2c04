//! Prints docs/models.md: the text of models.md beside this file, with the tables of this crate and
//! what the fixtures show in it.
//!
//! ```text
//! cargo run --release -p assay-checkpoint --example models > docs/models.md
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use assay_checkpoint::{
    Activation, Architecture, Block, BlockForm, Checkpoint, Family, NAME_INFIXES, NAME_PREFIXES,
    NormKind, Positions, QkNorm, Rope, RopeScaling, gguf_formats, gguf_pre_tokenizers,
};
use serde_json::{Map, Value};

fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", page()?);
    Ok(())
}

/// The page.
pub(crate) fn page() -> Result<String, Box<dyn Error>> {
    let fixtures = fixtures()?;
    let all =
        |of: fn(Family) -> &'static [&'static str]| listed(Family::all().flat_map(of).copied());
    let tables = [
        ("families", families(&fixtures)),
        ("computed", computed(&fixtures)),
        ("prefixes", listed(NAME_PREFIXES)),
        ("infixes", listed(NAME_INFIXES)),
        ("buffers", all(Family::buffers)),
        ("other_parts", all(Family::other_parts)),
        ("formats", listed(gguf_formats())),
        (
            "pre_tokenizers",
            listed(gguf_pre_tokenizers().flatten().copied()),
        ),
    ];
    let page = include_str!("models.md").to_owned();
    Ok(tables.iter().fold(page, |page, (name, table)| {
        page.replace(&format!("{{{name}}}"), table)
    }))
}

/// A checkpoint that the decoder is held against reference values with.
pub(crate) struct Fixture {
    /// Below tests/fixtures.
    pub(crate) name: String,
    pub(crate) architecture: Architecture,
}

impl Fixture {
    fn open(root: &Path, name: String) -> Result<Self, Box<dyn Error>> {
        let checkpoint = Checkpoint::open(&root.join(&name))?;
        let architecture = checkpoint.architecture().clone();
        Ok(Self { name, architecture })
    }
}

/// All fixtures by name: directories with a config.json and an expected.json that has windows, and
/// GGUF files for which an expected.json names the original.
pub(crate) fn fixtures() -> Result<Vec<Fixture>, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures");
    let mut names = Vec::new();
    for folder in ["", "families/", "gguf/"] {
        for entry in fs::read_dir(root.join(folder))? {
            let path = entry?.path();
            let expected = path.join("expected.json");
            let is_case = path.join("config.json").exists() && expected.exists();
            if is_case && read(&expected)?.contains_key("windows") {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                names.push(format!("{folder}{name}"));
            }
        }
    }
    let files = read(&root.join("gguf/expected.json"))?;
    names.extend(files.keys().map(|name| format!("gguf/{name}.gguf")));
    names.sort();
    let open = |name| Fixture::open(&root, name);
    names.into_iter().map(open).collect()
}

fn read(path: &PathBuf) -> Result<Map<String, Value>, Box<dyn Error>> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn of(fixtures: &[Fixture], family: Family) -> impl Iterator<Item = &Fixture> {
    fixtures
        .iter()
        .filter(move |one| one.architecture.family == family)
}

fn families(fixtures: &[Fixture]) -> String {
    let types = |family: Family| {
        let types = family.types().iter();
        let types = types.map(|(name, class)| format!("`{name}` / `{class}`"));
        types.collect::<Vec<_>>().join(", ")
    };
    let head = [
        "family",
        "models",
        "`model_type` / class",
        "GGUF",
        "checked with",
    ];
    let rows = Family::all().map(|family| {
        [
            code(family.name()),
            family.models().to_owned(),
            types(family),
            family.gguf().map_or("-".to_owned(), code),
            listed(of(fixtures, family).map(|fixture| fixture.name.as_str())),
        ]
    });
    table(head, rows)
}

fn computed(fixtures: &[Fixture]) -> String {
    let head = ["family", "blocks", "norm", "positions", "attention", "MLP"];
    let rows = Family::all().map(|family| {
        let seen = |parts: fn(&Architecture) -> Vec<String>| {
            let all = of(fixtures, family).flat_map(|fixture| parts(&fixture.architecture));
            distinct(all).join("; ")
        };
        [
            code(family.name()),
            seen(|architecture| vec![form(architecture.form).to_owned()]),
            seen(|architecture| vec![norm(architecture.norm).to_owned()]),
            seen(positions),
            seen(attention),
            seen(mlp),
        ]
    });
    table(head, rows)
}

fn form(form: BlockForm) -> &'static str {
    match form {
        BlockForm::PreNorm => "norms before",
        BlockForm::Sandwich => "norms before and behind",
        BlockForm::PostNorm => "norms behind",
        BlockForm::ResidualNorm => "norms of the sums",
        BlockForm::Parallel => "side by side, a norm each",
        BlockForm::ParallelShared => "side by side, one norm",
    }
}

fn norm(norm: NormKind) -> &'static str {
    match norm {
        NormKind::Rms => "RMS",
        NormKind::RmsFloat => "RMS, weighted in float32",
        NormKind::Layer => "layer norm",
    }
}

fn positions(architecture: &Architecture) -> Vec<String> {
    let Architecture {
        positions,
        blocks,
        head_dim,
        ..
    } = architecture;
    let mut parts = match positions {
        Positions::Learned => vec!["learned".to_owned()],
        Positions::Alibi => vec!["alibi".to_owned()],
        Positions::Rotary(ropes) => ropes.iter().map(|one| rope(one, *head_dim)).collect(),
    };
    let rotary = matches!(positions, Positions::Rotary(_));
    if rotary && blocks.iter().any(|block| block.rope.is_none()) {
        parts.push("none in some blocks".to_owned());
    }
    parts
}

fn rope(rope: &Rope, head_dim: usize) -> String {
    let scaling = match rope.scaling {
        RopeScaling::None => "",
        RopeScaling::Linear(_) => ", linear",
        RopeScaling::Llama3 { .. } => ", llama3",
        RopeScaling::Yarn { .. } => ", yarn",
        RopeScaling::LongRope { .. } => ", longrope",
        RopeScaling::Divisors(_) => ", divisors in the file",
    };
    let part = if rope.dims < head_dim {
        " of a part of the head"
    } else {
        ""
    };
    format!("rotary{part}{scaling}")
}

fn attention(architecture: &Architecture) -> Vec<String> {
    let blocks = &architecture.blocks;
    let sliding = |block: &Block| block.window.is_some();
    let (heads, kv_heads) = (architecture.heads, architecture.kv_heads);
    let each = |present: bool, what: &str| present.then(|| what.to_owned());
    let normed = architecture.qk_norm.map(|over| match over {
        QkNorm::Head => "norm of q and k by head",
        QkNorm::EachHead => "norm of q and k by head, each its own",
        QkNorm::Projection => "norm of all of q and k",
    });
    let parts = [
        each(kv_heads == heads, "a key head for each query head"),
        each(kv_heads > 1 && kv_heads < heads, "grouped key heads"),
        each(kv_heads == 1 && heads > 1, "one key head"),
        each(architecture.biases.qkv, "biases"),
        normed.map(str::to_owned),
        each(blocks.iter().all(sliding), "windows in all blocks"),
        each(
            blocks.iter().any(sliding) && !blocks.iter().all(sliding),
            "windows in some blocks",
        ),
        each(architecture.softcaps.attention.is_some(), "soft caps"),
    ];
    parts.into_iter().flatten().collect()
}

fn mlp(architecture: &Architecture) -> Vec<String> {
    let activation = match architecture.activation {
        Activation::Silu => "SiLU",
        Activation::Gelu => "GELU",
        Activation::GeluTanh => "GELU by tanh",
        Activation::Relu => "ReLU",
    };
    let gated = if architecture.gated { "gated " } else { "" };
    let experts = |block: &Block| block.experts;
    let blocks = &architecture.blocks;
    let which = match (
        blocks.iter().any(experts),
        blocks.iter().all(experts),
        architecture.biases.mlp,
    ) {
        (true, true, _) => ", experts in all blocks",
        (true, false, _) => ", experts in some blocks",
        (false, _, true) => ", biases",
        (false, _, false) => "",
    };
    vec![format!("{gated}{activation}{which}")]
}

fn table<const N: usize>(head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let rule = [(); N].map(|()| "---".to_owned());
    let mut lines = vec![line(&head.map(str::to_owned)), line(&rule)];
    lines.extend(rows.map(|row| line(&row)));
    lines.join("\n")
}

/// Each once, in the order of the first.
fn distinct<T: Ord + Clone>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = BTreeMap::new();
    for (index, one) in all.enumerate() {
        seen.entry(one).or_insert(index);
    }
    let mut order: Vec<(T, usize)> = seen.into_iter().collect();
    order.sort_by_key(|(_, index)| *index);
    order.into_iter().map(|(one, _)| one).collect()
}

fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names = distinct(names.into_iter());
    names.into_iter().map(code).collect::<Vec<_>>().join(", ")
}

fn code(name: &str) -> String {
    format!("`{name}`")
}
