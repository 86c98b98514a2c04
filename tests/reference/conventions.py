"""Makes conventions.json: methods that the fixtures' own expected.json does not have.

    pip install torch==2.11.0 transformers==5.24.0
    python conventions.py

The joined conventions with `bos` forced and forbidden, with odd windows and strides, and over
several documents, by transformers in float32 and without any code of this project. The texts are
those of each fixture's expected.json; docs/numerics.md says what the conventions mean.
"""

import json
import pathlib

import torch
import transformers
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM

HERE = pathlib.Path(__file__).parent
MODELS = ["llama_gqa", "llama_tied"]
METHODS = [
    {"convention": "blocks", "window": 64, "tail": "score", "bos": "never"},
    {"convention": "blocks", "window": 33, "bos": "always"},
    {"convention": "strided", "window": 64, "stride": 16, "bos": "never"},
    {"convention": "strided", "window": 50, "stride": 49},
    {"convention": "strided", "window": 2, "stride": 1},
    {"convention": "llamacpp", "window": 64, "bos": "never"},
    {"convention": "llamacpp", "window": 33, "bos": "always"},
    {"convention": "llamacpp", "window": 4},
]
JOINS = ["\n\n", "", " | "]
JOINED = [
    {"convention": "blocks", "window": 64, "tail": "score"},
    {"convention": "strided", "window": 64, "stride": 40},
    {"convention": "llamacpp", "window": 32},
]


def spans(method, positions):
    """Windows: first position, end, and the positions in it that are scored."""
    size, convention = method["window"], method["convention"]
    if convention == "strided":
        seen = 1
        for start in range(0, positions, method["stride"]):
            end = min(start + size, positions)
            yield start, end, range(seen, end)
            seen = end
            if end == positions:
                break
        return
    for start in range(0, positions, size):
        end = start + size
        if end > positions and method.get("tail") != "score":
            break
        end = min(end, positions)
        half = size // 2 + 1 if convention == "llamacpp" else 1
        yield start, end, range(start + half, end)


@torch.no_grad()
def score(model, tokenizer, bos, method, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    with_bos = method.get("bos", "auto") != "never"  # the tokenizers of all fixtures add one
    stream = [bos] * with_bos + ids
    total, count = 0.0, 0
    for start, end, scored in spans(method, len(stream)):
        if not scored:
            continue
        fed = stream[start:end]
        if with_bos and method["convention"] == "llamacpp":
            fed[0] = bos
        nll = -model(torch.tensor([fed])).logits[0].double().log_softmax(-1)
        for position in scored:
            total += nll[position - start - 1, stream[position]].item()
        count += len(scored)
    return {"scored_tokens": count, "nll": total}


def main():
    torch.set_num_threads(1)
    cases = []
    for name in MODELS:
        folder = HERE / "../fixtures" / name
        expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        model = LlamaForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        bos = expected["tokenizer"]["bos_id"]
        texts = {which: expected["tokens"][which]["text"] for which in ["short", "long", "mixed"]}
        jobs = [(method, ["long"], texts["long"]) for method in METHODS]
        for join in JOINS:
            text = join.join(texts.values())
            jobs += [(method | {"join": join}, list(texts), text) for method in JOINED]
        for method, documents, text in jobs:
            case = {"model": name, "documents": documents, "method": method}
            cases.append(case | score(model, tokenizer, bos, method, text))
            print(cases[-1], flush=True)
        # The formula above, against the values the fixture came with.
        for which, method in [("strided", {"convention": "strided", "window": 64, "stride": 16}),
                              ("llamacpp", {"convention": "llamacpp", "window": 64})]:
            own, given = score(model, tokenizer, bos, method, texts["long"]), \
                expected["windows"]["ppl"][which]
            assert own["scored_tokens"] == given["scored_tokens"], which
            assert abs(own["nll"] / given["nll_sum"] - 1) < 1e-6, which
    lines = ",\n  ".join(json.dumps(case) for case in cases)
    (HERE / "conventions.json").write_text(
        f'{{\n "made_by": "conventions.py",\n "transformers": "{transformers.__version__}",\n'
        f' "torch": "{torch.__version__}",\n "cases": [\n  {lines}\n ]\n}}\n'
    )


main()
