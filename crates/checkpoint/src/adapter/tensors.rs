//! The tensors of an adapter, by the module they change.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::bare;
use crate::tensor::StoredTensor;

/// A tensor with the name it is stored by.
type Named = (String, StoredTensor);

/// What an adapter has for one module.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Its name in the base, wrappers of the base's own included.
    pub(super) name: String,
    /// The matrices that are multiplied: that of the lower rank's side first (`lora_A`, `lora_B`).
    pub(super) factors: Option<(Named, Named)>,
    /// Whether they are those of an embedding.
    pub(super) embedding: bool,
    /// What takes the place of the weight.
    pub(super) weight: Option<Named>,
    /// What takes the place of the bias.
    pub(super) bias: Option<Named>,
}

/// All tensors of an adapter.
#[derive(Debug)]
pub(super) struct Found {
    /// By the name of the module without wrappers.
    modules: BTreeMap<String, Module>,
    names: Vec<String>,
}

/// What PEFT puts in front of every name.
const PREFIX: &str = "base_model.model.";

/// Ends of names, and what the tensor is. Longer ends first: `.base_layer.weight` is a weight.
const ENDS: [(&str, Role); 8] = [
    (".lora_A.weight", Role::Down),
    (".lora_B.weight", Role::Up),
    (".lora_embedding_A", Role::EmbeddingDown),
    (".lora_embedding_B", Role::EmbeddingUp),
    (".base_layer.weight", Role::Weight),
    (".base_layer.bias", Role::Bias),
    (".weight", Role::Weight),
    (".bias", Role::Bias),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Down,
    Up,
    EmbeddingDown,
    EmbeddingUp,
    Weight,
    Bias,
}

impl Found {
    /// Sorts tensors. One whose name has no known end belongs to no module, and stays unused.
    pub(super) fn new(stored: Vec<(String, StoredTensor)>) -> Self {
        let mut modules: BTreeMap<String, Module> = BTreeMap::new();
        let mut halves: BTreeMap<(String, bool), Vec<(Role, Named)>> = BTreeMap::new();
        let mut names = Vec::new();
        for (name, tensor) in stored {
            names.push(name.clone());
            // Names of a state dictionary that was not made by save_pretrained.
            let plain = name
                .replace(".default.weight", ".weight")
                .replace(".modules_to_save.", ".");
            let inner = plain.strip_prefix(PREFIX).unwrap_or(&plain);
            let end = ENDS.iter().find(|(end, _)| inner.ends_with(end));
            let Some((end, role)) = end else { continue };
            let full = &inner[..inner.len() - end.len()];
            let key = bare(full).into_owned();
            let module = modules.entry(key.clone()).or_default();
            full.clone_into(&mut module.name);
            let stored = (name, tensor);
            match role {
                Role::Weight => module.weight = Some(stored),
                Role::Bias => module.bias = Some(stored),
                Role::Down | Role::Up => {
                    halves
                        .entry((key, false))
                        .or_default()
                        .push((*role, stored));
                }
                Role::EmbeddingDown | Role::EmbeddingUp => {
                    halves.entry((key, true)).or_default().push((*role, stored));
                }
            }
        }
        for ((key, embedding), mut pair) in halves {
            pair.sort_by_key(|(role, _)| matches!(role, Role::Up | Role::EmbeddingUp));
            // One without the other stays unused.
            if let (Ok([(_, down), (_, up)]), Some(module)) =
                (<[_; 2]>::try_from(pair), modules.get_mut(&key))
            {
                module.factors = Some((down, up));
                module.embedding = embedding;
            }
        }
        Self { modules, names }
    }

    /// What there is for the module of this name, whatever wrappers are in front of it.
    pub(super) fn module(&self, name: &str) -> Option<&Module> {
        self.modules.get(bare(name).as_ref())
    }

    /// The first tensor that no slot used.
    pub(super) fn unused(&self, used: &BTreeSet<String>) -> Option<String> {
        let mut names = self.names.iter();
        names.find(|name| !used.contains(*name)).cloned()
    }
}
