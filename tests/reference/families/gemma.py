"""Gemma, whose norms scale by one plus the stored weight."""

import dataclasses

import torch

from alter import Alter, every, fields
from table import Case, hub

def tail(*layers):
    names = [f"model.layers.{layer}.mlp" for layer in layers]
    return tuple((f"{name}.gate_proj", f"{name}.down_proj") for name in names)


def gemma(model_type, architecture, **more):
    return hub(model_type, architecture, **(dict(
        rms_norm_eps=0.1, rope_theta=300.0, head_dim=16, attention_bias=False, attention_dropout=0.0,
        hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, pad_token_id=0,
        bos_token_id=2, eos_token_id=1,
    ) | more))


def scale_ignored(model):
    for module in model.modules():
        if type(module).__name__.endswith("ScaledWordEmbedding"):
            module.embed_scale.fill_(1.0)


def exact_gelu(model):
    for layer in model.model.layers:
        layer.mlp.act_fn = torch.nn.GELU()


COMMON = {
    "eps": fields(rms_norm_eps=1e-6),
    "norm without one": every(r".*norm.*\.weight", lambda t: t - 1),
}
ACTIVATION = {
    "exact gelu": fields(hidden_activation="gelu"),
    "silu": fields(hidden_activation="silu"),
}
WINDOW = {
    "window + 1": fields(sliding_window=11),
    "window - 1": fields(sliding_window=9),
    "window ignored": fields(sliding_window=4096),
    "query_pre_attn_scalar": fields(query_pre_attn_scalar=16),
}
ROPES = {
    "rope_theta": fields(rope_theta=900.0),
    "rope_local_base_freq": fields(rope_local_base_freq=200.0),
    "rope_scaling ignored": fields(rope_scaling=None),
    "rope_scaling.factor": fields(rope_scaling__factor=3.0),
}
GEMMA3 = dict(
    num_hidden_layers=3, rms_norm_eps=0.3, sliding_window=10, query_pre_attn_scalar=8, rope_local_base_freq=80.0,
    rope_scaling={"rope_type": "linear", "factor": 2.0}, attn_logit_softcapping=None,
    final_logit_softcapping=None,
)
TYPES = ["full_attention", "sliding_attention", "sliding_attention"]
# Only the embedding's own factor is wrong, not the tied head.
EMBED = {"embedding scale": Alter(model=scale_ignored)}

TEXT = gemma("gemma3_text", "Gemma3ForCausalLM", **GEMMA3, sliding_window_pattern=2)
TEXT_V5 = {key: value for key, value in TEXT.items()
           if key not in ("rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern")} | {
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 80.0},
        "full_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 2.0},
    },
}
VISION = dict(
    model_type="siglip_vision_model", hidden_size=16, intermediate_size=24, num_attention_heads=2,
    num_hidden_layers=1, image_size=16, patch_size=8, num_channels=3, vision_use_head=False,
)
MULTI = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "boi_token_index": 150, "eoi_token_index": 151, "image_token_index": 152,
    "eos_token_id": [1, 106],
    "initializer_range": 0.02,
    "mm_tokens_per_image": 4,
    # As bare as gemma-3-4b-it's: what is left out has the values of the config class.
    "text_config": {
        "head_dim": 8, "hidden_size": 32, "intermediate_size": 56, "model_type": "gemma3_text",
        "num_hidden_layers": 6, "rope_scaling": {"factor": 2.0, "rope_type": "linear"}, "sliding_window": 10,
        "vocab_size": 160,
    },
    "torch_dtype": "bfloat16",
    "vision_config": VISION,
}


def saved_names(state):
    """The names that transformers 5 writes: the text model whole below `language_model`."""
    text, whole = "model.language_model.", "language_model.model."
    return {name.replace(text, whole).removeprefix("model."): tensor for name, tensor in state.items()}


def hub_names(state):
    """The names on the hub, where the vision tower holds a `vision_model`."""
    named = saved_names(state).items()
    return {name.replace("vision_tower.", "vision_tower.vision_model."): tensor for name, tensor in named}


def inner(alters):
    """The alterations of a text config, for one that lies in a multimodal config."""
    return {
        name: dataclasses.replace(alter, config={f"text_config.{key}": value for key, value in alter.config.items()})
        for name, alter in alters.items()
    }


TYPED = WINDOW | EMBED | {"layer pattern": fields(layer_types=TYPES)}

DEFAULTS = EMBED | WINDOW | {
    "silu": ACTIVATION["silu"],
    "norm without one": COMMON["norm without one"],
    "eps": fields(rms_norm_eps=1.0),
    "rope_theta": fields(rope_theta=1e4),
    "rope_local_base_freq": fields(rope_local_base_freq=1e3),
    "rope_scaling ignored": fields(rope_scaling=None),
    "rope_scaling.factor": fields(rope_scaling__factor=8.0),
    "sliding_window_pattern": fields(sliding_window_pattern=3),
}

NO_TEXT = ("*vision_tower*", "*multi_modal_projector*")

CASES = [
    Case("gemma", "scaled embedding, norms by one plus weight, one kv head, a `gelu` that means the tanh form",
         gemma("gemma", "GemmaForCausalLM", num_key_value_heads=1, hidden_act="gelu", hidden_activation=None),
         COMMON | EMBED | {"rope_theta": fields(rope_theta=900.0), "exact gelu": Alter(model=exact_gelu),
                           "silu": fields(hidden_act="silu")}, tail=tail(1)),
    Case("gemma2", "soft caps, alternating windows, four norms a layer, query_pre_attn_scalar",
         gemma("gemma2", "Gemma2ForCausalLM", num_hidden_layers=3, rms_norm_eps=0.3,
               sliding_window=10, query_pre_attn_scalar=8, attn_logit_softcapping=3.0,
               final_logit_softcapping=10.0, cache_implementation="hybrid", hidden_act="gelu_pytorch_tanh"),
         COMMON | ACTIVATION | WINDOW | EMBED | {
             "rope_theta": fields(rope_theta=900.0),
             "attention cap ignored": fields(attn_logit_softcapping=None),
             "final cap ignored": fields(final_logit_softcapping=None),
             "attention cap": fields(attn_logit_softcapping=4.0),
             "final cap": fields(final_logit_softcapping=12.0),
             "layer pattern": fields(layer_types=["full_attention", "sliding_attention", "full_attention"]),
         }, tail=tail(1, 2)),
    Case("gemma3_text", "two rope bases, scaling of the global one only, sliding_window_pattern",
         TEXT, COMMON | ACTIVATION | TYPED | ROPES | {
             "pattern by default": fields(sliding_window_pattern=None)}, tail=tail(1, 2)),
    Case("gemma3_text_v5", "rope_parameters per layer type, layer_types",
         TEXT_V5, COMMON | ACTIVATION | TYPED | {
             "global theta": fields(rope_parameters__full_attention__rope_theta=900.0),
             "local theta": fields(rope_parameters__sliding_attention__rope_theta=200.0),
             "global factor": fields(rope_parameters__full_attention__factor=3.0)},
         style="v5", tail=tail(1, 2)),
    Case("gemma3_multimodal",
         "text model of a multimodal checkpoint, its config left to defaults (8 heads, 4 of kv, pattern 6)",
         MULTI, inner(DEFAULTS), sharper=2.0, disk=hub_names, unseen=NO_TEXT),
    Case("gemma3_multimodal_v5", "the same as transformers 5 writes it: all of the text config, other vision names",
         MULTI, inner(DEFAULTS), sharper=2.0, disk=saved_names, unseen=NO_TEXT, style="v5"),
]
