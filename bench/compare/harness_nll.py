"""Scores a text with lm-evaluation-harness: its rolling log-likelihood of one document.

Loading, tokenizing and a first batch are not timed. Prints one JSON object.
"""

import time

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

import contestant


def main():
    options = contestant.arguments(__doc__)
    imported = contestant.peak()
    model = HFLM(
        pretrained=options.model,
        device="cpu",
        dtype=options.dtype,
        max_length=options.window,
        batch_size=1,
        # The tokenizer's BOS is the prefix of the first window already.
        add_bos_token=False,
    )
    text = options.text.read_bytes().decode()
    start = time.perf_counter()
    ids = model.tok_encode(text)
    tokenizing = time.perf_counter() - start

    def score(document, batch):
        """Log-likelihood and seconds of a document."""
        model.batch_size_per_gpu = batch
        request = Instance(request_type="loglikelihood_rolling", doc={}, arguments=(document,), idx=0)
        begin = time.perf_counter()
        (likelihood,) = model.loglikelihood_rolling([request], disable_tqdm=True)
        return likelihood, time.perf_counter() - begin

    def run(tokens, batch):
        some = model.tok_decode(ids[:tokens])
        return min(tokens, len(ids)), score(some, batch)[1]

    versions = {"lm_eval": lm_eval.__version__}
    if options.batch is None:
        contestant.answer(imported=imported, trials=contestant.trials(options.window, run), versions=versions)
        return
    run(options.batch * options.window, options.batch)
    likelihood, seconds = score(text, options.batch)
    # The request tokenizes the text once more.
    contestant.answer(
        tokens=len(ids), seconds=seconds - tokenizing, nll=-likelihood, imported=imported, versions=versions
    )


main()
