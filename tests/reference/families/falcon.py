"""Falcon: four layouts of the fused projection, three arrangements of norms, rope or alibi."""

import torch

from alter import Alter, every, fields
from table import ABSENT, Case, hub


def falcon(**more):
    return hub("falcon", "FalconForCausalLM", **(dict(
        intermediate_size=ABSENT, num_key_value_heads=ABSENT, layer_norm_epsilon=0.04, rope_theta=300.0,
        alibi=False, bias=False, multi_query=True, new_decoder_architecture=False, parallel_attn=True,
        hidden_dropout=0.0, attention_dropout=0.0, tie_word_embeddings=True,
        apply_residual_connection_post_layernorm=False,
    ) | more))


COMMON = {"eps": fields(layer_norm_epsilon=1e-5), "tanh gelu": fields(activation="gelu_new")}
ROPE = COMMON | {"rope_theta": fields(rope_theta=900.0)}
TAIL = (("transformer.h.1.mlp.dense_h_to_4h", "transformer.h.1.mlp.dense_4h_to_h"),)


def read_as(*sizes):
    """The rows taken for [all of q, all of k, all of v] of these head counts, where they are grouped."""

    def change(tensor):
        dim = tensor.shape[0] // sum(sizes)
        query, key, value = tensor.split([size * dim for size in sizes])
        groups = sizes[1]
        parts = [part.unflatten(0, (groups, -1)) for part in (query, key, value)]
        return torch.cat(parts, 1).flatten(0, 1)

    return every(r".*query_key_value\.(weight|bias)", change)


def kv_exchanged(tensor):
    return torch.cat([tensor[:-16], tensor[-8:], tensor[-16:-8]])


def biased(change):
    """Alters the bias that alibi adds. transformers hands it to the layers inside the causal mask."""

    def masked(mask):
        seen = mask > torch.finfo(mask.dtype).min
        return torch.where(seen, change(mask), mask)

    def run(model):
        for layer in model.transformer.h:
            layer.register_forward_pre_hook(
                lambda _module, args, kwargs: (args, kwargs | {"attention_mask": masked(kwargs["attention_mask"])}),
                with_kwargs=True,
            )

    return Alter(model=run)


ALIBI = {
    "alibi ignored": biased(torch.zeros_like),
    "alibi twice, or after the scale": biased(lambda bias: bias * 2),
    "extra slopes in order": biased(lambda bias: bias[:, [8, 0, 9, 1, 10, 2, 11, 3, 4, 5, 6, 7]]),
}

CASES = [
    Case("falcon_mq", "falcon-7b: one kv head, one norm, parallel; the tied head stored once more",
         falcon(),
         ROPE | {"k and v exchanged": every(r".*query_key_value\.weight", kv_exchanged)}, tail=TAIL, tail_rms=1.0,
         stored_copy={"lm_head.weight": "transformer.word_embeddings.weight"}),
    Case("falcon_new", "falcon-40b: grouped kv heads, a norm each for attention and MLP",
         falcon(new_decoder_architecture=True, num_kv_heads=2, multi_query=True),
         ROPE | {"qkv contiguous": read_as(4, 2, 2)}, tail=TAIL, tail_rms=1.0),
    Case("falcon_11b", "falcon-11b: grouped kv heads, one norm for both, ffn_hidden_size of its own",
         falcon(new_decoder_architecture=True, num_kv_heads=2, num_ln_in_parallel_attn=1, ffn_hidden_size=56,
                tie_word_embeddings=False),
         ROPE | {"qkv contiguous": read_as(4, 2, 2)}, tail=TAIL, tail_rms=1.0, style="v5"),
    Case("falcon_rw", "sequential, biases, as many kv heads as heads, rope",
         falcon(bias=True, multi_query=False, parallel_attn=False),
         ROPE | {"qkv contiguous": read_as(4, 4, 4), "residual": fields(parallel_attn=True)}, tail=TAIL, tail_rms=1.0),
    # Eager attention of transformers 5.24 adds alibi twice: inside the mask and once more.
    Case("falcon_alibi", "falcon-rw-1b: alibi, twelve heads (no power of two); sdpa attention",
         falcon(alibi=True, bias=True, multi_query=False, parallel_attn=False, hidden_size=48,
                num_attention_heads=12),
         COMMON | ALIBI | {"qkv contiguous": read_as(12, 12, 12), "rope instead": fields(alibi=False)},
         tail=TAIL, tail_rms=2.0, attention="sdpa"),
]
