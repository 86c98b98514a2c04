"""Writes a GGUF checkpoint as the directory that transformers reads: the weights in bfloat16, the
dtype most checkpoints are published in, so that both dtypes compute with the same weights.

    python bench/compare/export.py GGUF DIRECTORY
"""

import sys
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    source, target = Path(sys.argv[1]), sys.argv[2]
    folder, file = str(source.parent), source.name

    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32).to(torch.bfloat16)
    # The weights are plain by now, but a model that remembers its quantizer is not saved.
    model.hf_quantizer, model.is_quantized = None, False
    model.config.__dict__.pop("quantization_config", None)
    model.save_pretrained(target)

    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    # The conversion leaves out that this vocabulary ("smollm") has each digit alone.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.save_pretrained(target)


main()
