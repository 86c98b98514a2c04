"""GPT-2, GPT-NeoX, OPT and StarCoder2: layer norms with biases and an MLP without a gate."""

import torch

from alter import Alter, every, fields
from table import ABSENT, Case, hub


def tail(layer, gate, down):
    return ((f"{layer}.{gate}", f"{layer}.{down}"),)


def gpt2(**more):
    return hub("gpt2", "GPT2LMHeadModel", **(dict(
        hidden_size=ABSENT, intermediate_size=ABSENT, num_hidden_layers=ABSENT, num_attention_heads=ABSENT,
        num_key_value_heads=ABSENT, max_position_embeddings=ABSENT, tie_word_embeddings=ABSENT,
        n_positions=96, n_ctx=96, n_embd=32, n_layer=2, n_head=4, n_inner=56, activation_function="gelu_new",
        layer_norm_epsilon=0.04, attn_pdrop=0.1, embd_pdrop=0.1, resid_pdrop=0.1,
        summary_type="cls_index", summary_first_dropout=0.1, summary_use_proj=True,
    ) | more))


def without_prefix(state):
    """The names of the first GPT-2 checkpoints, which also store the causal mask of every layer."""
    named = {name.removeprefix("transformer."): tensor for name, tensor in state.items()}
    mask = torch.ones(96, 96, dtype=torch.uint8).tril()[None, None]
    return named | {f"h.{layer}.attn.bias": mask.clone() for layer in range(2)}


def positions_moved(state):
    state["transformer.wpe.weight"] = state["transformer.wpe.weight"].roll(-1, 0)


def key_bias_dropped(state):
    for name in state:
        if name.endswith("attn.c_attn.bias"):
            state[name] = state[name].clone()
            state[name][32:64] = 0


GPT2 = {
    "eps": fields(layer_norm_epsilon=1e-5),
    "exact gelu": fields(activation_function="gelu"),
    "scale_attn_weights": fields(scale_attn_weights=False),
    "positions moved": Alter(state=positions_moved),
    "k bias dropped": Alter(state=key_bias_dropped),
}
TAIL = tail("transformer.h.1.mlp", "c_fc", "c_proj")


def neox(**more):
    return hub("gpt_neox", "GPTNeoXForCausalLM", **(dict(
        num_key_value_heads=ABSENT, hidden_size=64, intermediate_size=72, hidden_act="gelu", layer_norm_eps=0.04,
        rotary_emb_base=300, rotary_pct=0.5, use_parallel_residual=True, attention_bias=True,
        attention_dropout=0.0, hidden_dropout=0.0, classifier_dropout=0.1,
    ) | more))


def contiguous_qkv(tensor):
    """Read as all of q, then k, then v, where the file has q, k, v of each head in turn."""
    return tensor.unflatten(0, (3, 4, 16)).transpose(0, 1).flatten(0, 2)


NEOX = {
    "rotary_emb_base": fields(rotary_emb_base=900),
    "rotary_pct": fields(rotary_pct=0.25),
    "eps": fields(layer_norm_eps=1e-5),
    "tanh gelu": fields(hidden_act="gelu_new"),
    "qkv contiguous": every(r".*query_key_value\.(weight|bias)", contiguous_qkv),
}


def head_named(state):
    return {name.replace("lm_head.", "embed_out."): tensor for name, tensor in state.items()}


def with_buffers(state):
    """As the first checkpoints, with constants that are no weights."""
    buffers = {
        f"gpt_neox.layers.{layer}.attention.{name}": value.clone()
        for layer in range(2)
        for name, value in {"masked_bias": torch.tensor(-1e9), "rotary_emb.inv_freq": torch.ones(4)}.items()
    }
    return head_named(state) | buffers


NEOX_TAIL = tail("gpt_neox.layers.1.mlp", "dense_h_to_4h", "dense_4h_to_h")


def opt(**more):
    return hub("opt", "OPTForCausalLM", **(dict(
        intermediate_size=ABSENT, num_key_value_heads=ABSENT, ffn_dim=56, activation_function="relu",
        do_layer_norm_before=True, word_embed_proj_dim=32, pad_token_id=1, bos_token_id=2, prefix="</s>",
        attention_dropout=0.0, dropout=0.1, init_std=0.02, layerdrop=0.0, initializer_range=ABSENT,
        tie_word_embeddings=ABSENT, max_position_embeddings=96,
        _remove_final_layer_norm=False,
    ) | more))


def moved_by(rows):
    def run(state):
        name = "model.decoder.embed_positions.weight"
        state[name] = state[name].roll(rows, 0)

    return Alter(state=run)


def eps_of(value):
    def run(model):
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.eps = value

    return Alter(model=run)


OPT = {
    "gelu": fields(activation_function="gelu"),
    "positions without offset": moved_by(2),
    "positions by one": moved_by(-1),
    "eps": eps_of(0.05),
    "do_layer_norm_before": fields(do_layer_norm_before=False),
}


def starcoder(**more):
    return hub("starcoder2", "Starcoder2ForCausalLM", **(dict(
        hidden_act="gelu_pytorch_tanh", norm_epsilon=0.04, rope_theta=300, use_bias=True, sliding_window=10,
        norm_type="layer_norm", mlp_type="default", attention_dropout=0.0, residual_dropout=0.0,
        embedding_dropout=0.0, tie_word_embeddings=True,
    ) | more))


STARCODER = {
    "rope_theta": fields(rope_theta=900.0),
    "eps": fields(norm_epsilon=1e-5),
    "exact gelu": fields(hidden_act="gelu"),
}
CODER_TAIL = tail("model.layers.1.mlp", "c_fc", "c_proj")

CASES = [
    Case("gpt2", "names with the prefix `transformer.`, n_inner of its own", gpt2(), GPT2, tail=TAIL,
         unseen=("k bias dropped",)),
    Case("gpt2_inverse", "scale_attn_by_inverse_layer_idx; names without prefix, stored causal masks",
         gpt2(scale_attn_by_inverse_layer_idx=True, scale_attn_weights=True, reorder_and_upcast_attn=False),
         GPT2 | {"scale_attn_by_inverse_layer_idx": fields(scale_attn_by_inverse_layer_idx=False)},
         tail=TAIL, unseen=("k bias dropped",), disk=without_prefix),
    Case("gpt_neox", "sequential residual, rotary over half of the head; stored buffers",
         neox(use_parallel_residual=False), NEOX | {"residual": fields(use_parallel_residual=True)}, spread=0.2,
         tail=NEOX_TAIL, tail_rms=1.0, disk=with_buffers),
    Case("gpt_neox_v5", "parallel residual, no biases in attention, rope_parameters",
         neox(attention_bias=False), NEOX | {"residual": fields(use_parallel_residual=False)}, spread=0.2,
         tail=NEOX_TAIL, tail_rms=1.0, disk=head_named, style="v5"),
    Case("opt", "learned positions from row 2 on, relu, a tied head", opt(),
         OPT | {"_remove_final_layer_norm": fields(_remove_final_layer_norm=True)},
         unseen=("*k_proj.bias dropped",)),
    Case("opt_350m", "norms after the blocks, no last norm, embeddings of another width",
         opt(do_layer_norm_before=False, word_embed_proj_dim=24),
         OPT | {"do_layer_norm_before": fields(do_layer_norm_before=True)},
         unseen=("*k_proj.bias dropped",), style="v5"),
    Case("starcoder2", "sliding window, biases everywhere, a tied head", starcoder(),
         STARCODER | {"window + 1": fields(sliding_window=11), "window - 1": fields(sliding_window=9),
                      "window ignored": fields(sliding_window=None)}, tail=CODER_TAIL),
    Case("starcoder2_nobias", "use_bias false (norms keep theirs), no window",
         starcoder(use_bias=False, sliding_window=None), STARCODER, tail=CODER_TAIL, style="v5"),
]
