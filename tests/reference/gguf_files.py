"""Makes ../fixtures/gguf: fixtures as GGUF files, laid out as llama.cpp's converter lays them out.

    pip install torch==2.11.0 transformers==5.24.0 gguf==0.19.0 accelerate
    python gguf_checkpoints.py
    python gguf_files.py

Written without any code of this project. Names of tensors and keys are those of the public gguf
package; which of them a file has, and how a weight is stored, are facts of
convert_hf_to_gguf.py. The values are those of the fixture, so its own expected.json holds; that
transformers finds them in the file again, given the config, is asserted.

gguf_checkpoints.py makes those of the checkpoints that are beside the files.
"""

import json
import math

import gguf
import numpy
import safetensors.torch
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from windows import FIXTURES, expected, nlls

FILES = FIXTURES / "gguf"

# Name of the file, its architecture, and its checkpoint.
CASES = {
    "llama": ("LLAMA", "llama_gqa"),
    "llama3": ("LLAMA", "llama31_rope"),
    "llama_bf16": ("LLAMA", "bf16_llama"),
    "qwen2": ("QWEN2", "qwen2"),
    "qwen3": ("QWEN3", "qwen3"),
    "gemma2": ("GEMMA2", "gguf/gemma2"),
    "gemma3": ("GEMMA3", "gguf/gemma3"),
    "gemma3_keys": ("GEMMA3", "gguf/gemma3_keys"),
    "phi3": ("PHI3", "phi3"),
    "phi3_longrope": ("PHI3", "gguf/phi3_longrope"),
    "gpt2": ("GPT2", "gpt2"),
}

# Nats of a token that may differ by rounding only.
SAME = 1e-5

# Key by its method of GGUFWriter, and the field of the config that it takes.
SIZES = [
    ("context_length", "max_position_embeddings"), ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"), ("feed_forward_length", "intermediate_size"),
    ("head_count", "num_attention_heads"), ("head_count_kv", "num_key_value_heads"),
    ("layer_norm_rms_eps", "rms_norm_eps"),
]
HEADS = [("key_length", "head_dim"), ("value_length", "head_dim")]
KEYS = {
    "LLAMA": [*SIZES, *HEADS, ("vocab_size", "vocab_size"), ("rope_dimension_count", "head_dim")],
    "QWEN2": SIZES,
    "QWEN3": [*SIZES, *HEADS],
    "GEMMA2": [
        *SIZES, *HEADS, ("sliding_window", "sliding_window"),
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("final_logit_softcapping", "final_logit_softcapping"),
    ],
    "GEMMA3": [*SIZES, *HEADS, ("sliding_window", "sliding_window")],
    "PHI3": [*SIZES, ("rope_scaling_orig_ctx_len", "original_max_position_embeddings")],
    "GPT2": [
        ("context_length", "n_positions"), ("embedding_length", "n_embd"),
        ("block_count", "n_layer"), ("head_count", "n_head"),
        ("layer_norm_eps", "layer_norm_epsilon"),
    ],
}
# Name of the pre-tokenizer by a part of what tokenizer.json has as its pattern.
PRE_TOKENIZERS = [(r"\p{N}{1,3}|", "llama-bpe"), (r"\p{N}|", "qwen2"), ("", "gpt-2")]


def config_of(path):
    return AutoConfig.from_pretrained(FIXTURES / path)


def tensors_of(path):
    return safetensors.torch.load_file(FIXTURES / path / "model.safetensors")


def adjacent_pairs(weight, heads):
    """Rows of each head in the order that rotates neighbours, not the two halves, together."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def stored(arch, config, name, weight):
    """The weight in the layout of the file, or none if the file does not have it."""
    if name.endswith((".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")):
        return None
    if arch == "LLAMA" and name.endswith("q_proj.weight"):
        return adjacent_pairs(weight, config.num_attention_heads)
    if arch == "LLAMA" and name.endswith("k_proj.weight"):
        return adjacent_pairs(weight, config.num_key_value_heads)
    if arch in ("GEMMA2", "GEMMA3") and name.endswith("norm.weight"):
        return weight.float() + 1
    if arch == "GPT2" and name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
        return weight.T
    return weight


def quantization(name, weight):
    types = gguf.GGMLQuantizationType
    sixteen = {torch.float16: types.F16, torch.bfloat16: types.BF16}
    # Vectors, norms and learned positions are never narrower.
    narrow = weight.dim() > 1 and not name.endswith("_norm.weight") and "position" not in name
    return sixteen.get(weight.dtype, types.F32) if narrow else types.F32


def llama3_factors(config, rope):
    """What the frequencies are divided by (Llama 3.1's scaling)."""
    head = config.head_dim
    lengths = 2 * math.pi * rope["rope_theta"] ** (torch.arange(0, head, 2).double() / head)
    original, low, high = (
        rope[key]
        for key in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    # 0 for wavelengths that are scaled in full, 1 for those that are not.
    smooth = ((original / lengths - low) / (high - low)).clamp(0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).float()


def write_rope(writer, arch, config):
    """The keys of the rotary embedding, and the tensors some kinds of it have."""
    # A gemma2 file has none of these: all of its models have the default.
    if arch in ("GPT2", "GEMMA2"):
        return
    parameters = config.rope_parameters
    rope = parameters.get("full_attention", parameters)
    writer.add_rope_freq_base(rope["rope_theta"])
    tensors = {}
    if rope["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif rope["rope_type"] == "llama3":
        tensors = {gguf.MODEL_TENSOR.ROPE_FREQS: llama3_factors(config, rope)}
    elif rope["rope_type"] == "longrope":
        original = config.original_max_position_embeddings
        stretch = math.log(config.max_position_embeddings / original)
        writer.add_rope_scaling_attn_factors(math.sqrt(1 + stretch / math.log(original)))
        tensors = {
            gguf.MODEL_TENSOR.ROPE_FACTORS_LONG: torch.tensor(rope["long_factor"]),
            gguf.MODEL_TENSOR.ROPE_FACTORS_SHORT: torch.tensor(rope["short_factor"]),
        }
    for tensor, factors in tensors.items():
        writer.add_tensor(f"{gguf.TENSOR_NAMES[tensor]}.weight", factors.float().numpy())


def write_keys(writer, case, arch, config):
    for key, field in KEYS[arch]:
        getattr(writer, f"add_{key}")(getattr(config, field))
    if arch == "GPT2":
        writer.add_feed_forward_length(4 * config.n_embd)
    if arch == "PHI3":
        writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
        writer.add_sliding_window(config.sliding_window or 0)
    if case == "gemma3_keys":
        writer.add_rope_freq_base_swa(config.rope_parameters["sliding_attention"]["rope_theta"])
        writer.add_sliding_window_pattern(config.layer_types.index("full_attention") + 1)


def write_tokenizer(writer, path, size):
    """All fixtures have byte-level BPE, whatever the models they stand for have."""
    tokenizer = json.loads((FIXTURES / path / "tokenizer.json").read_text())
    pattern = json.dumps(tokenizer["pre_tokenizer"]).replace("\\\\", "\\")
    tokens, types = [f"[PAD{index}]" for index in range(size)], [gguf.TokenType.UNUSED] * size
    for token, index in tokenizer["model"]["vocab"].items():
        tokens[index], types[index] = token, gguf.TokenType.NORMAL
    for token in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
        tokens[token["id"]], types[token["id"]] = token["content"], kind
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(next(name for part, name in PRE_TOKENIZERS if part in pattern))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    special = gguf.SpecialVocab(FIXTURES / path, load_merges=True, n_vocab=size)
    special.add_to_gguf(writer, quiet=True)


def write_file(case, arch, path):
    config, tensors = config_of(path), tensors_of(path)
    architecture = gguf.MODEL_ARCH[arch]
    writer = gguf.GGUFWriter(FILES / f"{case}.gguf", gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_type(gguf.GGUFType.MODEL)
    writer.add_name(case)
    write_keys(writer, case, arch, config)
    dtypes = {weight.dtype for weight in tensors.values()}
    kinds = gguf.LlamaFileType
    writer.add_file_type(
        kinds.MOSTLY_F16 if torch.float16 in dtypes
        else kinds.MOSTLY_BF16 if torch.bfloat16 in dtypes
        else kinds.ALL_F32
    )
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    write_tokenizer(writer, path, config.vocab_size)
    write_rope(writer, arch, config)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, weight in tensors.items():
        weight = stored(arch, config, name, weight)
        if weight is None:
            continue
        name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        kind = quantization(name, weight)
        values = numpy.ascontiguousarray(weight.float().numpy())
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_back(case, path):
    """Asserts that transformers, which knows the layouts too, computes what the fixture says."""
    model = AutoModelForCausalLM.from_pretrained(
        FILES, gguf_file=f"{case}.gguf", config=config_of(path), dtype=torch.float32,
        attn_implementation="eager",
    ).eval()
    windows = expected(path)["windows"]
    for window in [windows["single"], *windows["batch"]]:
        known = torch.tensor(window["nll_f32"]).double()
        found = torch.tensor(nlls(model, window["ids"])).double()
        assert (found - known).abs().max() < SAME, case
    # It takes these from the config instead.
    reader = gguf.GGUFReader(FILES / f"{case}.gguf")
    tensors = {tensor.name: torch.tensor(tensor.data) for tensor in reader.tensors}
    if (factors := tensors.get("rope_freqs.weight")) is not None:
        base, head = model.config.rope_parameters["rope_theta"], model.config.head_dim
        frequencies = base ** -(torch.arange(0, head, 2) / head) / factors
        torch.testing.assert_close(model.model.rotary_emb.inv_freq, frequencies)
    if factor := reader.get_field("phi3.rope.scaling.attn_factor"):
        assert abs(factor.contents() - model.model.rotary_emb.attention_scaling) < SAME


def main():
    torch.set_num_threads(1)
    for case, (arch, path) in CASES.items():
        write_file(case, arch, path)
        read_back(case, path)
    (FILES / "expected.json").write_text(json.dumps({
        case: path for case, (_, path) in CASES.items()
    }, indent=1) + "\n")


main()
