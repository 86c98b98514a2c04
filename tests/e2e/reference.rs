//! What transformers computes for the fixtures (fixtures/README.md says how).

use std::fs;

use assay_testkit::fixture;
use serde_json::Value;

/// The checkpoints with an `expected.json` of the shared form.
pub(crate) const FIXTURES: [&str; 13] = [
    "llama_gqa",
    "llama_tied",
    "llama31_rope",
    "sharded_llama",
    "bf16_llama",
    "gemma2",
    "gemma3",
    "gpt2",
    "gpt_neox",
    "mistral_sliding",
    "phi3",
    "qwen2",
    "qwen3",
];
/// Relative, on a sum of NLLs.
pub(crate) const TOLERANCE: f64 = 2e-6;

/// The reference values of a fixture.
pub(crate) fn expected(name: &str) -> Value {
    let text = fs::read_to_string(fixture(name).join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// One of the texts `short`, `long` and `mixed` of a fixture.
pub(crate) fn text(expected: &Value, name: &str) -> String {
    expected["tokens"][name]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Relative difference.
pub(crate) fn differs_by(value: f64, reference: f64) -> f64 {
    // Of nothing, 0 / 0 would be none.
    (value - reference).abs() / reference.abs().max(f64::MIN_POSITIVE)
}

/// Checks a sum of NLLs within [`TOLERANCE`].
pub(crate) fn assert_close(value: f64, reference: f64, what: &str) {
    let difference = differs_by(value, reference);
    assert!(
        difference < TOLERANCE,
        "{what}: {value} is off {reference} by {difference:e}"
    );
}

/// Checks an NLL of a token within the tolerance of a float32 computation.
pub(crate) fn assert_token_close(value: f64, reference: f64, what: &str) {
    let difference = (value - reference).abs();
    assert!(
        difference <= 5e-5 * reference.max(10.0),
        "{what}: {value} is off {reference} by {difference:e}"
    );
}
