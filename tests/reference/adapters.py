"""Makes ../fixtures/adapters: LoRA adapters as PEFT writes them, and what its merged models say.

    pip install torch==2.11.0 transformers==5.24.0 peft==0.21.2
    PYTHONHASHSEED=0 python adapters.py

Written without any code of this project. The bases are the fixtures; the adapters are random (the
same each time; the hash seed only orders the lists that PEFT keeps as sets). A reference reads the
files back with PEFT, merges them into the base in float32 and scores the windows of the base's own
expected.json: eager attention, log-softmax in float64 from the float32 logits.
../fixtures/README.md says what expected.json holds.
"""

import itertools
import os

import peft
import safetensors.torch
import torch
import transformers
from peft import IA3Config, LoraConfig, PeftModel, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from windows import FIXTURES, expected, nlls, relative, scored, write_expected

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
LINEAR = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
# An adapter that changes a total by less would not show when it is left out.
LEAST_CHANGE = 1e-2
# The same for each tensor of it; the tolerance on a total is 2e-6.
LEAST_CHANGE_OF_A_TENSOR = 1e-4
# Of totals that may differ by rounding only.
SAME = 1e-6

# Name of the case, its base, and the arguments of LoraConfig.
MERGED = {
    "llama": ("llama_gqa", {"target_modules": LINEAR}),
    "rslora": ("llama_gqa", {"target_modules": ["q_proj", "v_proj"], "use_rslora": True}),
    # Patterns are tried in the order of the file, which PEFT sorts by key, and the first that
    # matches counts: for q_proj of layer 0 that is not the most exact one.
    "patterns": ("llama31_rope", {
        "target_modules": LINEAR,
        "layers_to_transform": [0, 2],
        "layers_pattern": "layers",
        "rank_pattern": {
            r"^model\.layers\.0\.mlp\.(gate|up)_proj": 2,
            "k_proj": 1,
            "layers.2.self_attn.v_proj": 8,
            "proj": 7,
        },
        "alpha_pattern": {
            r".*\.2\.mlp\..*": 3,
            "[qk]_proj": 12,
            "layers.0.self_attn.q_proj": 40,
            "odel.layers.0.self_attn.o_proj": 40,
        },
    }),
    "regex": ("llama31_rope", {
        "target_modules": r".*\.(0|2)\.(self_attn\.[qv]_proj|mlp\.down_proj)",
    }),
    "modules_to_save": ("llama_gqa", {
        "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head", "embed_tokens"],
    }),
    "embedding": ("llama_gqa", {"target_modules": ["embed_tokens", "q_proj"]}),
    "head": ("llama_gqa", {"target_modules": ["lm_head", "q_proj"]}),
    "tied_embedding": ("llama_tied", {"target_modules": ["embed_tokens", "q_proj"]}),
    "tied_head": ("llama_tied", {"target_modules": ["lm_head", "q_proj"]}),
    "tied_saved": ("llama_tied", {
        "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"],
    }),
    "gpt2": ("gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    "phi3": ("phi3", {"target_modules": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}),
    "qwen2_bias": ("qwen2", {"target_modules": ["q_proj", "o_proj"], "bias": "all"}),
    "qwen2_lora_bias": ("qwen2", {"target_modules": ["q_proj", "o_proj"], "bias": "lora_only"}),
    "bf16": ("bf16_llama", {"target_modules": LINEAR}),
    "all_linear": ("llama_gqa", {"target_modules": "all-linear"}),
    "exclude_modules": ("llama_gqa", {
        "target_modules": LINEAR, "exclude_modules": ["layers.0.self_attn.q_proj"],
    }),
}
# Name of the case, its base, the field of adapter_config.json to refuse it by, and the config.
REFUSED = {
    "dora": ("llama_gqa", "use_dora", LoraConfig(target_modules=ATTENTION, use_dora=True)),
    "ia3": ("llama_gqa", "peft_type", IA3Config(
        target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"],
    )),
    "lora_bias": ("qwen2", "lora_bias", LoraConfig(
        target_modules=["q_proj", "v_proj"], lora_bias=True,
    )),
    "tied_both": ("llama_tied", "ensure_weight_tying", LoraConfig(
        target_modules=["embed_tokens", "q_proj"], ensure_weight_tying=True,
    )),
    "trainable_tokens": ("llama_gqa", "trainable_token_indices", LoraConfig(
        target_modules=["q_proj"], trainable_token_indices=[5, 17, 300],
    )),
}
# Made for a model with this hidden size, whose modules have the names of those of llama_gqa.
OTHER_HIDDEN_SIZE = 64
# Adapters of a weight that the embedding and the head share: PEFT merges into the shared weight, so
# its merged model is another than the one that was trained.
DIFFERS_MERGED = ["tied_embedding", "tied_head"]
VERSIONS = {
    "peft": peft.__version__,
    "transformers": transformers.__version__,
    "torch": torch.__version__,
}


def base_model(name, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(
        name, dtype=dtype, attn_implementation="eager"
    ).eval()


def randomise(model, seed):
    """Gives random values to all that PEFT would train, far enough from the base to show."""
    generator = torch.Generator().manual_seed(seed)
    for key, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=generator)
        if not weight.requires_grad:
            continue
        if "lora_embedding_A" in key:
            weight.data = noise.to(weight.dtype)
        elif "lora_A" in key or "lora_B" in key and weight.dim() == 2 or "embedding_B" in key:
            weight.data = (noise / weight.shape[-1] ** 0.5).to(weight.dtype)
        else:
            # A copy of a weight or bias of the base, DoRA's magnitudes or a factor of IA3.
            weight.data += (0.3 * noise).to(weight.dtype)


def save(model, path):
    model.save_pretrained(path)
    (path / "README.md").unlink()
    (path / "adapter_model.safetensors").chmod(0o644)


def adapted(base, path):
    return PeftModel.from_pretrained(base_model(base), path).eval()


def weakest_tensor(base, path, ids, total):
    """The least change of the total when a tensor of the adapter is left out, and its name."""
    changes = {}
    tensors = safetensors.torch.load_file(path / "adapter_model.safetensors")
    for name in tensors:
        if "base_layer.weight" in name or "lora_A" in name or "embedding_A" in name:
            # A copy of the base, or nothing without its B.
            continue
        model = adapted(base, path)
        parts = name.removeprefix("base_model.model.")
        for key, weight in model.base_model.model.named_parameters():
            if key.replace(".default", "").replace(".modules_to_save", "") == parts:
                weight.data.zero_()
        changes[name] = relative(sum(nlls(model.merge_and_unload(), ids)), total)
    name = min(changes, key=changes.get)
    return {"name": name, "change": float(f"{changes[name]:.4g}")}


def reference(base, path):
    """The NLLs of the merged model, or none where a part of the adapter would hardly be missed."""
    windows = expected(base)["windows"]
    ids, total = windows["single"]["ids"], windows["single"]["total_f32"]
    # The base itself comes out as its own reference says.
    assert relative(sum(nlls(base_model(base), ids)), total) < SAME, base
    merged = scored(adapted(base, path).merge_and_unload(), windows)
    beside = scored(adapted(base, path), windows)
    merged_total = merged["single"]["total_f32"]
    change = relative(merged_total, total)
    weakest = weakest_tensor(base, path, ids, merged_total)
    if change < LEAST_CHANGE or weakest["change"] < LEAST_CHANGE_OF_A_TENSOR:
        return None
    result = {"windows": merged, "change": change, "weakest_tensor": weakest}
    # Merging changes what is computed only where PEFT adds to a weight that the head shares.
    if path.name in DIFFERS_MERGED:
        assert relative(beside["single"]["total_f32"], merged_total) > LEAST_CHANGE
        return result | {"windows_unmerged": beside}
    assert relative(beside["single"]["total_f32"], merged_total) < SAME
    return result


def make(case, base, config, seed=0, dtype=torch.float32):
    path = FIXTURES / "adapters" / case
    model = get_peft_model(base_model(base, dtype), config, autocast_adapter_dtype=False)
    randomise(model, seed)
    save(model, path)
    return path


def merged_case(case, base, arguments):
    """An adapter and its reference, of the first seed with which all of the adapter shows."""
    for seed in itertools.count():
        config = LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **arguments)
        dtype = torch.bfloat16 if case == "bf16" else torch.float32
        path = make(case, base, config, seed, dtype)
        if result := reference(base, path):
            return path, {"base": base, "seed": seed} | result


def main():
    assert os.environ.get("PYTHONHASHSEED") == "0", "set PYTHONHASHSEED=0"
    # PEFT writes down the path of the base as it was given.
    os.chdir(FIXTURES)
    torch.set_num_threads(1)
    header = {"made_by": "reference/adapters.py", "versions": VERSIONS}
    for case, (base, arguments) in MERGED.items():
        path, result = merged_case(case, base, arguments)
        write_expected(path, header | result)
        print(case, result["seed"], result["change"], result["weakest_tensor"], flush=True)
    for case, (base, field, config) in REFUSED.items():
        path = make(case, base, config)
        write_expected(path, header | {"base": base, "refused_by": field})
    other = AutoConfig.from_pretrained("llama_gqa", hidden_size=OTHER_HIDDEN_SIZE)
    model = get_peft_model(
        AutoModelForCausalLM.from_config(other), LoraConfig(r=4, target_modules=LINEAR)
    )
    randomise(model, 0)
    save(model, FIXTURES / "adapters/other_base")
    refused = {"base": "llama_gqa", "refused_by": "shape"}
    write_expected(FIXTURES / "adapters/other_base", header | refused)


main()
