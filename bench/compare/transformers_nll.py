"""Scores a text with transformers in the loop of its documentation, windows as `rolling` has them.

Loading, tokenizing and a first batch are not timed. Prints one JSON object.
"""

import json
import time

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import contestant


def windows(prefix, ids, width):
    """Inputs, targets and how many of the last targets count: windows of one width, the last one
    with the context that the tokens before it give."""
    text = [prefix, *ids]
    for start in range(0, len(ids), width):
        end = min(start + width, len(ids))
        first = max(end - width, 0)
        yield text[first:end], text[first + 1 : end + 1], end - start


@torch.inference_mode()
def score(model, spans, batch):
    """NLLs of the counted tokens, a tensor for each window, and the seconds."""
    nlls = []
    start = time.perf_counter()
    for at in range(0, len(spans), batch):
        inputs, targets, counted = zip(*spans[at : at + batch])
        targets = torch.tensor(targets)
        logits = model(input_ids=torch.tensor(inputs), use_cache=False).logits
        values = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), reduction="none"
        ).view_as(targets)
        nlls += [row[-count:] for row, count in zip(values, counted)]
    return nlls, time.perf_counter() - start


def main():
    options = contestant.arguments(__doc__)
    imported = contestant.peak()
    model = AutoModelForCausalLM.from_pretrained(
        options.model, dtype=getattr(torch, options.dtype), attn_implementation="sdpa"
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    ids = tokenizer(options.text.read_bytes().decode(), add_special_tokens=False).input_ids
    spans = list(windows(tokenizer.bos_token_id, ids, options.window))

    def run(tokens, batch):
        some = spans[: tokens // options.window]
        return len(some) * options.window, score(model, some, batch)[1]

    if options.batch is None:
        contestant.answer(imported=imported, trials=contestant.trials(options.window, run))
        return
    run(options.batch * options.window, options.batch)
    nlls, seconds = score(model, spans, options.batch)
    nlls = torch.cat(nlls).double()
    if options.nlls:
        options.nlls.write_text(json.dumps(nlls.tolist()))
    contestant.answer(tokens=len(nlls), seconds=seconds, nll=nlls.sum().item(), imported=imported)


main()
