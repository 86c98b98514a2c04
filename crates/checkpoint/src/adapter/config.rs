//! adapter_config.json, as PEFT writes it.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::CheckpointError;
use crate::config::{Fields, MAX_WIDTH};

/// What of a LoRA configuration decides the numbers. Which modules are changed, the tensors say.
#[derive(Debug)]
pub(super) struct LoraConfig {
    file: String,
    rank: usize,
    alpha: f64,
    /// Divide by the root of the rank (rsLoRA), not by the rank.
    by_root: bool,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
}

/// Fields under which an adapter is something else than a product of two matrices, unless they are
/// null, false or empty.
const REFUSED: [&str; 14] = [
    "use_dora",
    "lora_bias",
    "use_qalora",
    "use_bdlora",
    "layer_replication",
    "alora_invocation_tokens",
    "trainable_token_indices",
    "target_parameters",
    "ensure_weight_tying",
    "megatron_config",
    "arrow_config",
    "kasa_config",
    "velora_config",
    "monteclora_config",
];

/// Ways to initialise that leave the base as it is.
const INITIALISED: [&str; 3] = ["gaussian", "eva", "orthogonal"];

/// Bounds of what expressions may take in memory: some 64 MB together.
const MAX_PATTERNS: usize = 1024;
const PATTERN_BYTES: usize = 1 << 16;

const REMEDY: &str = "merge the adapter with PEFT (merge_and_unload) and give the merged model";

impl LoraConfig {
    /// Reads the file.
    ///
    /// # Errors
    /// It is damaged, or describes another kind of adapter, which is named.
    pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Self, CheckpointError> {
        let map: Map<String, Value> = serde_json::from_slice(bytes).map_err(|error| {
            CheckpointError::damaged(file, format!("it is not a JSON object ({error})"))
        })?;
        let fields = Fields {
            file,
            within: String::new(),
            map: &map,
            alias: &BTreeMap::new(),
        };
        let only = |name: &str, wanted: &str, remedy: &str| match fields.text(name)? {
            Some(value) if value != wanted => Err(fields.unsupported(name, value, remedy)),
            value => Ok(value),
        };
        if only("peft_type", "LORA", "only LORA is; merge others with PEFT")?.is_none() {
            return Err(fields.wrong("peft_type", "is missing"));
        }
        let task = "only adapters of language models (CAUSAL_LM) are";
        only("task_type", "CAUSAL_LM", task)?;
        for name in REFUSED {
            if let Some(value) = fields.get(name).filter(|value| !is_neutral(value)) {
                let text: String = value.to_string().chars().take(40).collect();
                return Err(fields.unsupported(name, text, REMEDY));
            }
        }
        let name = "init_lora_weights";
        if let Some(Value::String(kind)) = fields.get(name)
            && !INITIALISED.contains(&kind.as_str())
        {
            let remedy = "it changes the base itself; save the adapter as an ordinary LoRA \
                          (path_initial_model_for_weight_conversion), or merge it";
            return Err(fields.unsupported(name, kind, remedy));
        }
        let alpha = fields.positive("lora_alpha")?;
        Ok(Self {
            file: file.to_owned(),
            rank: fields.required_size("r", MAX_WIDTH)?,
            alpha: alpha.ok_or_else(|| fields.wrong("lora_alpha", "is missing"))?,
            by_root: fields.flag("use_rslora")?.unwrap_or(false),
            ranks: patterns(&fields, "rank_pattern", |of, key| of.size(key, MAX_WIDTH))?,
            alphas: patterns(&fields, "alpha_pattern", positive)?,
        })
    }

    /// What the product of a module's two matrices is multiplied by; `rank` is theirs.
    ///
    /// # Errors
    /// The configuration says another rank.
    pub(super) fn scale(&self, module: &str, rank: usize) -> Result<f64, CheckpointError> {
        let said = first(&self.ranks, module).unwrap_or(self.rank);
        if said != rank {
            let detail = format!("is {said} for `{module}`, whose tensors have rank {rank}");
            return Err(CheckpointError::configuration(&self.file, "r", detail));
        }
        let alpha = first(&self.alphas, module).unwrap_or(self.alpha);
        let rank = rank as f64;
        Ok(alpha / if self.by_root { rank.sqrt() } else { rank })
    }
}

// A function, since a method is of one lifetime only.
fn positive(of: &Fields, key: &str) -> Result<Option<f64>, CheckpointError> {
    of.positive(key)
}

fn is_neutral(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

/// The values for modules whose names match, in the order of the names, in which PEFT writes them.
fn patterns<T>(
    fields: &Fields,
    name: &str,
    read: impl Fn(&Fields, &str) -> Result<Option<T>, CheckpointError>,
) -> Result<Vec<(Regex, T)>, CheckpointError> {
    let Some(of) = fields.object(name)? else {
        return Ok(Vec::new());
    };
    if of.map.len() > MAX_PATTERNS {
        let detail = format!("has {} entries, but {MAX_PATTERNS} are read", of.map.len());
        return Err(fields.wrong(name, detail));
    }
    let mut found = Vec::new();
    for key in of.map.keys() {
        // PEFT's `get_pattern_key`: the end of the name from a dot on, or all of it.
        let expression = RegexBuilder::new(&format!(r"^(?:.*\.)?(?:{key})$"))
            .size_limit(PATTERN_BYTES)
            .build()
            .map_err(|error| of.wrong(key, format!("is not an expression ({error})")))?;
        if let Some(value) = read(&of, key)? {
            found.push((expression, value));
        }
    }
    Ok(found)
}

fn first<T: Copy>(patterns: &[(Regex, T)], module: &str) -> Option<T> {
    let found = patterns
        .iter()
        .find(|(expression, _)| expression.is_match(module));
    found.map(|(_, value)| *value)
}
