"""Random weights for a case, the model that transformers makes of them, and its reference values.

A case (`table.Case`) states a `config.json`; everything else follows from it and a seed.
Weights are rounded to bfloat16 before use, so the reference and the file hold the same numbers.
"""

import copy
import re
import zlib

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

FIRST_ID = 4  # ids below are the special tokens of the configs
LENGTHS = {"single": [96], "batch": [17, 64, 96]}


def config_of(fields):
    """The configuration object that transformers makes of the fields of a `config.json`."""
    fields = copy.deepcopy(fields)
    return CONFIG_MAPPING[fields["model_type"]].from_dict(fields)


def empty_model(fields, attention="eager"):
    return AutoModelForCausalLM.from_config(
        config_of(fields), attn_implementation=attention, experts_implementation="eager", dtype=torch.float32
    ).eval()


def model_of(case, state):
    return with_state(empty_model(case.config, case.attention), state)


def is_norm(name):
    return re.search(r"norm|\.ln_", name) is not None


def is_embedding(name):
    return re.search(r"embed|\.wte|\.wpe|lm_head", name) is not None


def plain_norm(fields):
    """The stored norm weight that scales by one."""
    return 0.0 if fields["model_type"].startswith("gemma") else 1.0


def random_tensor(case, name, shape):
    generator = torch.Generator().manual_seed(zlib.crc32(f"{case.name}/{case.seed}/{name}".encode()))
    values = torch.randn(shape, generator=generator)
    if name.endswith("bias"):
        return values * 0.4
    if re.search(r"post_\w+_layernorm", name) and re.match("gemma[23]", case.config["model_type"]):
        return 2.0 + values * 0.4  # ends a block, which must count beside the scaled embedding
    if re.search(r"self_attn\.[qk]_norm", name):
        values = values + case.sharper / 0.4
    if is_norm(name):
        return plain_norm(case.config) + values * 0.4
    if is_embedding(name):
        # A common part gives the hidden states a direction that `shift_gate` can use. In a head
        # it moves all logits of a token alike, which a softmax does not see.
        values = values + torch.randn(shape[-1:], generator=generator) if len(shape) == 2 else values
        return values * 0.5
    if re.search(r"(mlp|block_sparse_moe)\.gate\.weight", name):
        return values * 0.6
    return values * case.spread * (1.5 if "experts" in name else 1.0)


def rounded(state):
    return {name: tensor.to(torch.bfloat16).float() for name, tensor in state.items()}


def with_state(model, state):
    """Loads `state`; only norms that an altered config adds may be missing (they stay plain)."""
    report = model.load_state_dict(state, strict=False)
    filled = {p.data_ptr() for n, p in model.named_parameters() if n not in report.missing_keys}
    for name, parameter in model.state_dict().items():
        tied = parameter.data_ptr() in filled
        if name in report.missing_keys and not tied and not is_norm(name):
            raise ValueError(f"no weights for {name}")
    return model


def random_state(case):
    model = empty_model(case.config, case.attention)
    state = rounded({n: random_tensor(case, n, p.shape) for n, p in model.named_parameters()})
    for gate, down in case.tail:
        state = shift_gate(case, state, gate, down)
    return state


def shift_gate(case, state, gate, down):
    """Moves the inputs of one activation to about -3, where the kinds of GELU differ most.

    Elsewhere they differ by less than a thousandth. The output is scaled up to match.
    """
    model, seen = model_of(case, state), {}
    model.get_submodule(gate).register_forward_hook(lambda _m, i, _o: seen.update(gate=i[0]))
    model.get_submodule(down).register_forward_hook(lambda _m, _i, o: seen.update(down=o.clone()))
    score(model, windows(case)["single"][0])
    mean = seen["gate"].reshape(-1, seen["gate"].shape[-1]).mean(0)
    transposed = type(model.get_submodule(gate)).__name__ == "Conv1D"
    weight = state[f"{gate}.weight"].T if transposed else state[f"{gate}.weight"]
    weight = weight * 0.12 - 3.0 * mean / mean.square().sum()
    state[f"{gate}.weight"] = (weight.T if transposed else weight).contiguous()
    if f"{gate}.bias" in state:
        state[f"{gate}.bias"] = state[f"{gate}.bias"] * 0.3
    score(with_state(model, state), windows(case)["single"][0])
    rms = (seen["down"] - state.get(f"{down}.bias", 0.0)).square().mean().sqrt()
    state[f"{down}.weight"] = state[f"{down}.weight"] * case.tail_rms / rms
    return rounded(state)


def windows(case):
    """Random ids per window."""
    generator = torch.Generator().manual_seed(zlib.crc32(case.name.encode()))
    vocab = case.config.get("text_config", case.config)["vocab_size"]
    return {
        name: [torch.randint(FIRST_ID, vocab, (length,), generator=generator).tolist() for length in lengths]
        for name, lengths in LENGTHS.items()
    }


@torch.no_grad()
def score(model, ids):
    """`-ln p` of every token but the first: log-softmax in float64 from the model's logits."""
    logits = model(torch.tensor([ids]), use_cache=False).logits[0, :-1]
    return -logits.double().log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def router_margin(model, all_ids):
    """The least gap between the last chosen and the first refused router logit; None without experts."""
    gaps = []

    def gap(module, _inputs, output):
        ranked = output[0].sort(dim=-1, descending=True).values
        gaps.append((ranked[:, module.top_k - 1] - ranked[:, module.top_k]).min().item())

    for module in model.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.register_forward_hook(gap)
    for ids in all_ids:
        score(model, ids)
    return min(gaps, default=None)
