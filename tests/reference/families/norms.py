"""OLMo 2, Granite, StableLM and Cohere: other norms, multipliers and residuals around Llama's blocks."""

from alter import fields
from llama import COMMON
from table import Case, hub


def stablelm(**more):
    return hub("stablelm", "StableLmForCausalLM", **(dict(
        hidden_size=64, hidden_act="silu", layer_norm_eps=0.04, rope_theta=300, partial_rotary_factor=0.25,
        use_qkv_bias=True, qk_layernorm=False, use_parallel_residual=False, hidden_dropout=0.0,
        attention_dropout=0.0,
    ) | more))


STABLELM = {
    "rope_theta": fields(rope_theta=900.0),
    "eps": fields(layer_norm_eps=1e-5),
    "gelu": fields(hidden_act="gelu"),
    "partial_rotary_factor": fields(partial_rotary_factor=0.5),
}


def cohere(**more):
    return hub("cohere", "CohereForCausalLM", **(dict(
        hidden_act="silu", layer_norm_eps=0.04, rope_theta=300.0, attention_bias=False, logit_scale=1.5,
        use_qk_norm=False, attention_dropout=0.0, pad_token_id=0, tie_word_embeddings=True,
    ) | more))


COHERE = {
    "rope_theta": fields(rope_theta=900.0),
    "eps": fields(layer_norm_eps=1e-5),
    "gelu": fields(hidden_act="gelu"),
    "logit_scale": fields(logit_scale=1.0),
}

CASES = [
    Case("olmo2", "norms after the blocks, norms over all of q and k",
         hub("olmo2", "Olmo2ForCausalLM", hidden_act="silu", rms_norm_eps=0.04, rope_theta=300, rope_scaling=None,
             attention_bias=False, attention_dropout=0.0, pad_token_id=3), COMMON, style="v5"),
    Case("granite", "four multipliers",
         hub("granite", "GraniteForCausalLM", hidden_act="silu", rms_norm_eps=0.04, rope_theta=300.0,
             rope_scaling=None, attention_bias=False, mlp_bias=False, attention_dropout=0.0, pad_token_id=0,
             tie_word_embeddings=True, embedding_multiplier=2.0, attention_multiplier=0.25,
             residual_multiplier=0.6, logits_scaling=0.6),
         COMMON | {"embedding_multiplier": fields(embedding_multiplier=1.0),
                   "attention_multiplier": fields(attention_multiplier=8**-0.5),
                   "residual_multiplier": fields(residual_multiplier=1.0),
                   "logits_scaling": fields(logits_scaling=1.0)}),
    Case("stablelm", "sequential, biases on q, k, v, layer norms with biases", stablelm(),
         STABLELM | {"residual": fields(use_parallel_residual=True)}, spread=0.2),
    Case("stablelm_parallel", "parallel residual from one norm, a norm for each head of q and k",
         stablelm(use_parallel_residual=True, qk_layernorm=True, use_qkv_bias=False),
         STABLELM | {"residual": fields(use_parallel_residual=False), "qk_layernorm": fields(qk_layernorm=False)},
         spread=0.2, style="v5"),
    Case("cohere", "parallel residual, adjacent rotary pairs, norms of q and k per head, logit_scale",
         cohere(use_qk_norm=True), COHERE | {"use_qk_norm": fields(use_qk_norm=False)}),
    Case("cohere_plain", "the same without norms of q and k", cohere(), COHERE, style="v5"),
]
