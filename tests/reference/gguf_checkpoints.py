"""Makes the checkpoints of ../fixtures/gguf: like fixtures, but such that a GGUF file can say it.

    pip install torch==2.11.0 transformers==5.24.0
    python gguf_checkpoints.py

Written without any code of this project. Some of what a config.json can say has no place in the
files of gguf_files.py. Where a fixture says such a thing, a checkpoint that does not is made here,
with the NLLs that transformers computes for it: float32, eager attention, log-softmax in float64.
"""

import json
import shutil

import safetensors.torch
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

from windows import FIXTURES, expected, nlls, relative, scored, write_expected

TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"]
LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0, 2.5],
    "long_factor": [1.5, 2.0, 3.0, 5.0, 8.0, 12.0],
}
# Name of the checkpoint, the one its tokenizer, windows and, where they fit, weights are from, and
# what its config.json says else. The scale of attention is always that of head_dim in a file.
# Without keys of its own a gemma3 file has a full layer in six, and a local base of 10000.
OWN = {
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 16}),
    "gemma3": ("gemma3", {
        "num_hidden_layers": 7, "hidden_size": 32, "intermediate_size": 64,
        "query_pre_attn_scalar": 16, "rope_local_base_freq": 10000.0,
        "sliding_window_pattern": 6, "torch_dtype": "float16",
    }),
    "gemma3_keys": ("gguf/gemma3", {
        "rope_local_base_freq": 300.0, "sliding_window_pattern": 3,
    }),
    # The three windows are shorter than, as long as, and longer than the original context.
    "phi3_longrope": ("phi3", {
        "original_max_position_embeddings": 64, "rope_scaling": LONGROPE, "sliding_window": None,
    }),
}
# What changes the total of the single window by more than SHOWS, when config.json says this.
MISTAKES = {
    "gemma2": {"query_scale": {"query_pre_attn_scalar": 40}},
    "gemma3": {
        "local_base": {"rope_local_base_freq": 1000.0},
        "global_base": {"rope_theta": 10000.0},
        "pattern": {"sliding_window_pattern": 5},
        "scaling_ignored": {"rope_scaling": None},
        "window_plus1": {"sliding_window": 21},
        "query_scale": {"query_pre_attn_scalar": 32},
    },
    "gemma3_keys": {
        "local_base": {"rope_local_base_freq": 10000.0},
        "pattern": {"sliding_window_pattern": 6},
        "scaling_ignored": {"rope_scaling": None},
    },
    "phi3_longrope": {
        "short_factors": {"rope_scaling": LONGROPE | {"long_factor": LONGROPE["short_factor"]}},
        "scaling_ignored": {"rope_scaling": None},
        "attention_factor": {"rope_scaling": LONGROPE | {"attention_factor": 1.0}},
    },
}
SHOWS = 1e-3


def model_of(path, **changes):
    fields = json.loads((path / "config.json").read_text()) | changes
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    return AutoModelForCausalLM.from_pretrained(
        path, config=config, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def random_weights(path):
    """Of the shapes that the config asks for, large enough for a mistake to show."""
    generator = torch.Generator().manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path))
    weights = {}
    for name, weight in sorted(model.named_parameters()):
        noise = torch.randn(weight.shape, generator=generator)
        if weight.dim() == 1:
            # One is added to these. Attention is made sharp, and a large part of what is added up.
            more = {"q_norm": 1.5, "k_norm": 1.5, "post_attention_layernorm": 2}
            noise = 0.3 * noise + sum(more[part] for part in more if part in name)
        else:
            noise *= 0.5 if "embed" in name else weight.shape[1] ** -0.5
        weights[name] = noise.half()
    return weights


def make_checkpoint(case):
    base, changes = OWN[case]
    path = FIXTURES / "gguf" / case
    path.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER:
        shutil.copyfile(FIXTURES / base / name, path / name)
    config = json.loads((FIXTURES / base / "config.json").read_text()) | changes
    (path / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if "hidden_size" in changes:
        weights = random_weights(path)
    else:
        weights = safetensors.torch.load_file(FIXTURES / base / "model.safetensors")
    safetensors.torch.save_file(weights, path / "model.safetensors", {"format": "pt"})

    reference, model = expected(base), model_of(path)
    windows = scored(model, reference["windows"])
    ids, total = windows["single"]["ids"], windows["single"]["total_f32"]
    sensitivity = {
        name: relative(sum(nlls(model_of(path, **mistake), ids)), total)
        for name, mistake in MISTAKES[case].items()
    }
    print(case, sensitivity, flush=True)
    assert min(sensitivity.values()) > SHOWS, case
    write_expected(path, {
        "made_by": "reference/gguf_checkpoints.py",
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
        "tokens": reference["tokens"],
        "windows": windows,
        "sensitivity": {name: float(f"{change:.4g}") for name, change in sensitivity.items()},
    })


def main():
    torch.set_num_threads(1)
    for case in OWN:
        make_checkpoint(case)


main()
