"""Llama and the families whose layers differ from it little."""

from alter import fields
from table import Case, hub


def llama(**more):
    return hub("llama", "LlamaForCausalLM", **(dict(
        hidden_act="silu", rms_norm_eps=0.04, rope_theta=300.0, attention_bias=False, mlp_bias=False,
        pretraining_tp=1, attention_dropout=0.0,
    ) | more))


COMMON = {
    "rope_theta": fields(rope_theta=400.0),
    "eps": fields(rms_norm_eps=1e-5),
    "gelu": fields(hidden_act="gelu"),
}


def scaling(**values):
    return {f"rope_scaling.{key}": fields(**{f"rope_scaling__{key}": value}) for key, value in values.items()} | {
        "rope_scaling ignored": fields(rope_scaling=None)
    }


YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=1.5, beta_slow=0.5)

CASES = [
    Case("llama_bias", "biases in attention and MLP", llama(attention_bias=True, mlp_bias=True), COMMON),
    Case("llama_linear", "linear rope scaling in its oldest form (`type`)",
         llama(rope_scaling={"type": "linear", "factor": 2.5}),
         COMMON | scaling(factor=2.0)),
    Case("llama_yarn", "yarn, own beta_fast and beta_slow, attention factor by default",
         llama(head_dim=16, rope_scaling=YARN),
         COMMON | scaling(factor=3.0, original_max_position_embeddings=64, beta_fast=3.0, beta_slow=0.25,
                          attention_factor=1.0, truncate=False)),
    Case("llama_yarn_mscale", "yarn, mscale and mscale_all_dim, truncate false",
         llama(head_dim=16, rope_scaling=YARN | {"mscale": 2.0, "mscale_all_dim": 0.5, "truncate": False}),
         COMMON | scaling(factor=3.0, original_max_position_embeddings=64, beta_fast=3.0, beta_slow=0.25,
                          mscale=None, mscale_all_dim=1.0, truncate=True, attention_factor=1.0), style="v5"),
    Case("llama_dynamic", "dynamic NTK within max_position_embeddings, where it does nothing",
         llama(rope_scaling={"rope_type": "dynamic", "factor": 4.0}),
         COMMON | {"as linear": fields(rope_scaling__rope_type="linear"),
                   "rope_scaling ignored": fields(rope_scaling=None)},
         unseen=("rope_scaling ignored",)),
    Case("smollm3", "layers without rope by no_rope_layers",
         hub("smollm3", "SmolLM3ForCausalLM", hidden_act="silu", rms_norm_eps=0.04, rope_theta=300.0,
             num_hidden_layers=4, no_rope_layers=[1, 0, 1, 1], no_rope_layer_interval=4,
             attention_bias=False, mlp_bias=False, use_sliding_window=False, sliding_window=None,
             pad_token_id=3, tie_word_embeddings=True),
         COMMON | {"no_rope_layers ignored": fields(no_rope_layers=None),
                   "rope everywhere": fields(no_rope_layers=[1, 1, 1, 1])}),
    Case("mistral", "explicit head_dim, sliding window on every layer",
         hub("mistral", "MistralForCausalLM", hidden_act="silu", rms_norm_eps=0.04, rope_theta=300.0,
             head_dim=16, sliding_window=10),
         COMMON | {"window + 1": fields(sliding_window=11), "window - 1": fields(sliding_window=9),
                   "window ignored": fields(sliding_window=4096)}),
]
