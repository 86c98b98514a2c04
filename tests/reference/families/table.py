"""What a case states, and the parts that many configs share."""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass
class Case:
    """A checkpoint: `config` as on disk, `alters` by name, `disk` from model names to file names."""

    name: str
    about: str
    config: dict
    alters: dict
    style: str = "v4"
    attention: str = "eager"  # transformers' implementation
    seed: int = 0
    spread: float = 0.3  # standard deviation of the projections
    sharper: float = 0.0  # added to the norms of q and k, where the scale leaves attention too even
    tail: tuple = ()  # (gate, down) modules, see build.shift_gate
    tail_rms: float = 3.0  # what these modules then put out
    unseen: tuple = ()  # patterns of alterations that provably change nothing
    disk: Callable = dict
    stored_copy: dict = dataclasses.field(default_factory=dict)  # tied tensors stored once more


def hub(model_type, architecture, **more):
    """A config in the form found on the hub; the sizes are those of every case unless given."""
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 56,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    }
    shared = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": 160,
        "max_position_embeddings": 128,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }
    fields = shared | sizes | more
    return {key: value for key, value in sorted(fields.items()) if value is not ABSENT}


ABSENT = object()  # removes a shared field
