"""Qwen and the mixtures of experts."""

from alter import Alter, every, fields
from llama import COMMON
from table import Case, hub

WINDOW = {
    "window + 1": fields(sliding_window=11),
    "window - 1": fields(sliding_window=9),
    "window ignored": fields(use_sliding_window=False),
}


def qwen(model_type, architecture, **more):
    return hub(model_type, architecture, **(dict(
        hidden_act="silu", rms_norm_eps=0.04, rope_theta=300.0, attention_dropout=0.0, rope_scaling=None,
    ) | more))


QWEN2 = qwen("qwen2", "Qwen2ForCausalLM", num_hidden_layers=3, use_sliding_window=True, sliding_window=10,
             max_window_layers=2)
MIXED = ["full_attention", "sliding_attention", "full_attention"]


def experts(block, gate, up, down):
    """Per expert and matrix a tensor, as on the hub; in memory an expert's gate and up lie in one."""

    def disk(state):
        named = {}
        for name, tensor in state.items():
            name = name.replace(".mlp.", f".{block}.") if "experts" in name or ".mlp.gate." in name else name
            stem = name.rpartition(".")[0]
            if name.endswith("experts.gate_up_proj"):
                for n, both in enumerate(tensor):
                    named[f"{stem}.{n}.{gate}.weight"], named[f"{stem}.{n}.{up}.weight"] = both.chunk(2)
            elif name.endswith("experts.down_proj"):
                named |= {f"{stem}.{n}.{down}.weight": one for n, one in enumerate(tensor)}
            else:
                named[name] = tensor
        return named

    return disk


def gate_and_up_exchanged(tensor):
    return tensor.roll(tensor.shape[1] // 2, 1)


EXPERTS = {
    "one expert less": fields(num_experts_per_tok=1),
    "one expert more": fields(num_experts_per_tok=3),
    "gate and up exchanged": every(r".*experts\.gate_up_proj", gate_and_up_exchanged),
}


def not_normalised(model):
    """The chosen experts' weights as the softmax over all experts gives them."""

    def weigh(module, _inputs, output):
        logits, _, chosen = output
        return logits, logits.softmax(-1).gather(1, chosen), chosen

    for module in model.modules():
        if type(module).__name__.endswith("TopKRouter"):
            module.register_forward_hook(weigh)


def moe(**more):
    return qwen("qwen3_moe", "Qwen3MoeForCausalLM", **(dict(
        head_dim=16, attention_bias=False, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
        norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], use_sliding_window=False,
        sliding_window=None, max_window_layers=2, output_router_logits=False, router_aux_loss_coef=0.001,
    ) | more))


QWEN_DISK = experts("mlp", "gate_proj", "up_proj", "down_proj")
MOE = COMMON | EXPERTS

CASES = [
    Case("qwen2_sliding", "biases on q, k, v; a window from layer max_window_layers on", QWEN2,
         COMMON | WINDOW | {"max_window_layers + 1": fields(max_window_layers=3),
                            "max_window_layers - 1": fields(max_window_layers=1)}),
    Case("qwen2_v5", "windows by layer_types, rope_parameters", QWEN2 | {"layer_types": MIXED},
         COMMON | WINDOW | {"layer_types ignored": fields(layer_types=None),
                            "window ignored": fields(layer_types=["full_attention"] * 3)}, style="v5"),
    Case("qwen3", "norms of q and k per head, head_dim apart from hidden size, biases in attention",
         qwen("qwen3", "Qwen3ForCausalLM", head_dim=16, attention_bias=True, use_sliding_window=False,
              sliding_window=None, max_window_layers=2), COMMON),
    Case("mixtral", "4 experts, 2 a token, sliding window; an expert's matrices are w1, w3, w2",
         hub("mixtral", "MixtralForCausalLM", intermediate_size=24, hidden_act="silu", rms_norm_eps=0.04,
             rope_theta=300.0, sliding_window=10, num_local_experts=4, num_experts_per_tok=2,
             output_router_logits=False, router_aux_loss_coef=0.02, attention_dropout=0.0),
         MOE | {"window + 1": fields(sliding_window=11), "window - 1": fields(sliding_window=9),
                "window ignored": fields(sliding_window=None), "top-k not normalised": Alter(model=not_normalised)},
         disk=experts("block_sparse_moe", "w1", "w3", "w2")),
    Case("qwen3_moe", "norm_topk_prob, a dense layer by mlp_only_layers and by decoder_sparse_step",
         moe(num_hidden_layers=4, decoder_sparse_step=2, mlp_only_layers=[1]),
         MOE | {"norm_topk_prob": fields(norm_topk_prob=False)}, disk=QWEN_DISK),
    Case("qwen3_moe_plain", "experts in every layer, norm_topk_prob false", moe(norm_topk_prob=False),
         MOE | {"norm_topk_prob": fields(norm_topk_prob=True)}, disk=QWEN_DISK, style="v5"),
]
