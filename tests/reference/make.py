"""Makes moby-dick.json: the demo checkpoint's NLLs on the first chapters of the demo text.

    pip install torch==2.11.0 transformers==5.24.0 gguf numpy
    python make.py ../../build/demo/models/SmolLM2-135M-Instruct.Q4_1.gguf

Computed by transformers in float32, each window alone, without any code of this project. The
convention is `rolling` (docs/numerics.md); log-softmax and sums are taken in float64.
"""

import hashlib
import json
import pathlib
import re
import sys

import torch
import transformers
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).parent
TEXT = HERE / "../../demo/moby-dick.txt"
CHAPTERS = 2
WINDOW = 512


def chapters(text):
    """The texts from one heading line to the next."""
    return re.split(r"^(?=CHAPTER )", text, flags=re.M)[1:]


def tokenizer_of(path):
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    # The file's pre-tokenizer is `smollm`: single digits, then byte-level. transformers makes
    # only the second of it.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ])
    return tokenizer


def rolling(ids, prefix):
    """Input ids of every window, with the number of targets at its end that count, and these."""
    fed = [prefix] + ids
    for end in range(WINDOW, len(ids) + WINDOW, WINDOW):
        start, end = end - WINDOW, min(end, len(ids))
        yield fed[max(0, end - WINDOW):end], ids[start:end]


@torch.no_grad()
def nll(model, ids, prefix):
    total = 0.0
    for inputs, targets in rolling(ids, prefix):
        logits = model(torch.tensor([inputs])).logits[0, -len(targets):].double()
        total -= logits.log_softmax(-1).gather(1, torch.tensor(targets)[:, None]).sum().item()
    return total


def main():
    path = pathlib.Path(sys.argv[1])
    tokenizer = tokenizer_of(path)
    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    prefix = tokenizer.bos_token_id
    documents = []
    for text in chapters(TEXT.read_text(encoding="utf-8"))[:CHAPTERS]:
        ids = tokenizer.encode(text, add_special_tokens=False)
        documents.append({
            "first_ids": ids[:8],
            "tokens": len(ids),
            "bytes": len(text.encode()),
            "words": len(re.split(r"\s+", text)),
            "nll": nll(model, ids, prefix),
        })
        print(documents[-1], flush=True)
    reference = {
        "made_by": "make.py",
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "model_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "window": WINDOW,
        "prefix": prefix,
        "documents": documents,
    }
    (HERE / "moby-dick.json").write_text(json.dumps(reference, indent=1) + "\n")


main()
