"""Phi: the parallel one with biases, and the fused one with its two sets of rope factors."""

import dataclasses

import torch

from alter import every, fields
from llama import COMMON
from table import Case, hub


def phi(**more):
    return hub("phi", "PhiForCausalLM", **(dict(
        num_key_value_heads=4, hidden_act="gelu_new", layer_norm_eps=0.04, rope_theta=300.0,
        partial_rotary_factor=0.5, qk_layernorm=False, attention_dropout=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
        hidden_size=64, num_attention_heads=4, intermediate_size=72,
    ) | more))


PHI = {
    "rope_theta": fields(rope_theta=900.0),
    "eps": fields(layer_norm_eps=1e-5),
    "exact gelu": fields(hidden_act="gelu"),
    "partial_rotary_factor": fields(partial_rotary_factor=0.25),
    "rotary over the whole head": fields(partial_rotary_factor=1.0),
}
TAIL = (("model.layers.1.mlp.fc1", "model.layers.1.mlp.fc2"),)


def phi3(**more):
    return hub("phi3", "Phi3ForCausalLM", **(dict(
        hidden_act="silu", rms_norm_eps=0.04, rope_theta=300.0, rope_scaling=None, sliding_window=None,
        original_max_position_embeddings=128, attention_bias=False, attention_dropout=0.0, embd_pdrop=0.0,
        resid_pdrop=0.0, pad_token_id=0,
    ) | more))


QUERY, KEY = 32, 16  # rows of q and of k in qkv_proj


def kv_exchanged(tensor):
    query, key, value = tensor.split([QUERY, KEY, KEY])
    return torch.cat([query, value, key])


FUSED = {
    "gate and up exchanged": every(r".*gate_up_proj\.weight", lambda t: t.roll(t.shape[0] // 2, 0)),
    "gate and up interleaved": every(
        r".*gate_up_proj\.weight", lambda t: t.unflatten(0, (-1, 2)).transpose(0, 1).flatten(0, 1)
    ),
    "k and v exchanged": every(r".*qkv_proj\.weight", kv_exchanged),
    "query heads grouped in turn": every(
        r".*qkv_proj\.weight",
        lambda t: torch.cat([t[:QUERY].unflatten(0, (4, 8))[[0, 2, 1, 3]].flatten(0, 1), t[QUERY:]]),
    ),
}


def longrope(short, long):
    """Alterations of either set, each seen by a window that uses it."""
    scaled = dict(rope_scaling__long_factor=[f * 1.5 for f in long])
    brief = fields(rope_scaling__short_factor=[f * 1.5 for f in short])
    return {
        "long_factor": fields(**scaled),
        "short_factor, 17 ids": dataclasses.replace(brief, window=("batch", 0)),
        "long factors on 17 ids": dataclasses.replace(
            fields(rope_scaling__short_factor=long), window=("batch", 0)),
        "short factors on 96 ids": fields(rope_scaling__long_factor=short),
        "attention factor of one": fields(rope_scaling__attention_factor=1.0),
        "attention factor of one, 17 ids": dataclasses.replace(
            fields(rope_scaling__attention_factor=1.0), window=("batch", 0)),
        "max_position_embeddings": fields(max_position_embeddings=512),
        "original_max_position_embeddings": fields(original_max_position_embeddings=16),
    }


SHORT, LONG = [1.0, 1.3, 1.6, 2.0], [1.2, 2.0, 3.5, 6.0]

CASES = [
    Case("phi", "parallel residual from one norm, partial rotary, biases, a bias on the head", phi(), PHI,
         spread=0.2, tail=TAIL),
    Case("phi_qk", "the same with qk_layernorm", phi(qk_layernorm=True),
         PHI | {"qk_layernorm": fields(qk_layernorm=False)}, spread=0.2, tail=TAIL, style="v5"),
    Case("phi3", "fused qkv_proj and gate_up_proj, sliding window", phi3(sliding_window=10),
         COMMON | FUSED | {"window + 1": fields(sliding_window=11), "window - 1": fields(sliding_window=9),
                           "window ignored": fields(sliding_window=None)}),
    Case("phi3_longrope", "longrope: short factors up to original_max_position_embeddings, long ones above",
         phi3(original_max_position_embeddings=32,
              rope_scaling={"long_factor": LONG, "short_factor": SHORT, "type": "longrope"}),
         COMMON | FUSED | longrope(SHORT, LONG)),
    Case("phi3_partial", "longrope over half of the head, tied head",
         phi3(original_max_position_embeddings=32, partial_rotary_factor=0.5, tie_word_embeddings=True,
              rope_scaling={"long_factor": LONG[1:3], "short_factor": SHORT[1:3], "type": "longrope"}),
         COMMON | FUSED | longrope(SHORT[1:3], LONG[1:3]) | {
             "rotary over the whole head": fields(
                 partial_rotary_factor=1.0, rope_scaling__long_factor=LONG, rope_scaling__short_factor=SHORT)},
         style="v5"),
]
