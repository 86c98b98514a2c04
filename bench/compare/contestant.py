"""What the contestants of bench-compare share: arguments, the choice of the batch size, the answer."""

import argparse
import json
import sys
from pathlib import Path

import torch
import transformers

BATCHES = (1, 2)
# Tokens of a trial of one batch size, at least one batch.
TRIAL = 4096


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("model")
    parser.add_argument("text", type=Path)
    parser.add_argument("--dtype", required=True)
    parser.add_argument("--window", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--batch", type=int, help="windows at a time; without it all are tried, none measured")
    parser.add_argument("--nlls", type=Path, help="where to write the NLL of each token")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    return options


def peak():
    """Bytes of the largest resident set of this process so far."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def trials(window, run):
    """Rates of the batch sizes, and the peak of memory after each, the smallest first; `run(tokens,
    batch)` scores so many tokens and answers how many and the seconds."""
    answers = []
    for batch in BATCHES:
        run(batch * window, batch)
        tokens, seconds = run(max(TRIAL, batch * window), batch)
        answers.append({"batch": batch, "rate": tokens / seconds, "peak": peak()})
    return answers


def answer(**values):
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    json.dump({**values, "peak": peak(), "versions": {**versions, **values.get("versions", {})}}, sys.stdout)
    print()
