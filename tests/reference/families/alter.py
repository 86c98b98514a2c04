"""Wrong readings of a checkpoint: each must change the NLL, or a test cannot see the mistake."""

import copy
import dataclasses
import re
from collections.abc import Callable

import torch

import build


@dataclasses.dataclass
class Alter:
    """One mistake: fields of the config (dotted; None removes), the weights in place, or the model."""

    config: dict = dataclasses.field(default_factory=dict)
    state: Callable | None = None
    model: Callable | None = None
    window: tuple = ("single", 0)


def fields(**changes):
    return Alter(config={key.replace("__", "."): value for key, value in changes.items()})


def weights(change):
    return Alter(state=change)


def changed_config(config, changes):
    config = copy.deepcopy(config)
    for path, value in changes.items():
        *parents, last = path.split(".")
        inner = config
        for parent in parents:
            inner = inner[parent]
        inner.pop(last, None)
        if value is not None:
            inner[last] = value
    return config


def apply(case, state, alter):
    config = changed_config(case.config, alter.config)
    state = dict(state)
    if alter.state:
        alter.state(state)
    model = build.with_state(build.empty_model(config, case.attention), state)
    if alter.model:
        alter.model(model)
    return model


def every(pattern, change):
    """Alters each tensor whose whole name matches."""

    def run(state):
        names = [name for name in state if re.fullmatch(pattern, name)]
        assert names, pattern
        for name in names:
            state[name] = change(state[name]).contiguous()

    return Alter(state=run)


def swapped(first, second):
    """Exchanges the tensors of two patterns that differ in one word."""

    def run(state):
        for name in [name for name in state if first in name]:
            other = name.replace(first, second)
            state[name], state[other] = state[other], state[name]

    return Alter(state=run)


def by_group(case, state):
    """Per kind of tensor over all layers: biases dropped, norms plain, the others' rows moved by one."""
    plain = build.plain_norm(case.config)
    groups = sorted({re.sub(r"\.\d+(?=\.)", ".N", name) for name in state})
    for group in groups:
        pattern = re.escape(group).replace(r"\.N", r"\.\d+")
        members = [state[name] for name in state if re.fullmatch(pattern, name)]
        if group.endswith("bias"):
            yield f"{group} dropped", every(pattern, torch.zeros_like)
        elif build.is_norm(group):
            yield f"{group} dropped", every(pattern, lambda t: torch.full_like(t, plain))
        else:
            yield f"{group} rows moved", every(pattern, lambda t: t.roll(1, 0))
            if members[0].ndim == 2 and members[0].shape[0] == members[0].shape[1]:
                yield f"{group} transposed", every(pattern, lambda t: t.T)


def by_head(_case, state):
    """An output head of its own, overlooked."""
    embedding = next(name for name in state if re.search(r"embed_tokens\.|embed_in\.|word_embeddings\.|wte\.", name))
    if "lm_head.weight" in state:
        yield "head tied to the embedding", Alter(state=lambda s: s.update({"lm_head.weight": s[embedding]}))


def by_heads(case, state):
    """Other orders of heads, and of the dimensions that rotate together, where q and k are apart."""
    config = build.config_of(case.config).get_text_config()
    attention = r"(?!.*vision).*self_attn\."
    if not any(re.match(attention + "q_proj", name) for name in state):
        return
    heads = config.num_attention_heads
    kv = getattr(config, "num_key_value_heads", None) or heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    rope = getattr(config, "rope_parameters", None)
    if 1 < kv < heads:
        order = torch.arange(heads).view(kv, -1).T.flatten()

        def regroup(state):
            for name in state:
                if re.match(attention + r"q_proj\.", name):
                    state[name] = state[name].unflatten(0, (heads, dim))[order].flatten(0, 1)
                if re.match(attention + r"(o_proj|dense)\.weight", name):
                    state[name] = state[name].unflatten(1, (heads, dim))[:, order].flatten(1, 2)

        yield "query heads grouped in turn", Alter(state=regroup)
    if rope:
        part = rope.get("partial_rotary_factor", 1.0)
        turned = int(dim * part)
        order = torch.cat([torch.arange(0, turned, 2), torch.arange(1, turned, 2), torch.arange(turned, dim)])
        if config.model_type == "cohere":
            order = torch.argsort(order)

        def pairs(state):
            for name in state:
                if not re.match(attention + "[qk]_(proj|norm|layernorm)", name):
                    continue
                axis = -1 if build.is_norm(name) else 0
                tensor = state[name].movedim(axis, 0).unflatten(0, (-1, dim))[:, order].flatten(0, 1)
                state[name] = tensor.movedim(0, axis).contiguous()

        yield "other rotary pairs", Alter(state=pairs)


def all_of(case, state):
    yield from case.alters.items()
    yield from by_head(case, state)
    yield from by_heads(case, state)
    yield from by_group(case, state)


def measure(case, state, reference):
    """(name, |change of the total NLL| / total) for every alteration."""
    ids = build.windows(case)
    for name, alter in all_of(case, state):
        kind, index = alter.window
        total = reference[kind][index].sum()
        altered = build.score(apply(case, state, alter), ids[kind][index]).sum()
        yield name, abs((altered - total) / total).item()
