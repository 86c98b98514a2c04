"""Makes the checkpoints and reference values below tests/fixtures/families.

    pip install torch==2.11.0 transformers==5.24.0
    python tests/reference/families [CASE ...]
    python tests/reference/families --find-seed CASE ...

The first form writes every case, or those named, and the README of all. The second looks for
the first seed with which every alteration shows and notes it in seeds.json.
"""

import collections
import fnmatch
import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import alter
import build
import readme
from tables import CASES

SEEDS = pathlib.Path(__file__).parent / "seeds.json"
OUT = pathlib.Path(__file__).parents[2] / "fixtures" / "families"
LEAST = 1e-3  # relative change of the total that every alteration must cause
LEAST_MARGIN = 5e-4  # between router logits
MOST_NOISE = 1e-4  # nats a token, float32 against float64: a fifth of what tests allow
MOST_TOTAL_NOISE = 2.5e-7  # relative, on the total: an eighth of what tests allow


def reference_of(case, model):
    return {name: [build.score(model, ids) for ids in many] for name, many in build.windows(case).items()}


class Weak(Exception):
    """An alteration that does not show, or router logits too close to a tie."""


def noise_of(case, model, reference):
    """How far float32 is from float64 (where transformers does not cast to float32), on `single`."""
    there, here = build.score(model.double(), build.windows(case)["single"][0]), reference["single"][0]
    return {
        "max_token": float(f"{(there - here).abs().max().item():.1e}"),
        "relative_total": float(f"{abs((there.sum() / here.sum()).item() - 1):.1e}"),
    }


def measured(case):
    """Weights, reference values, sensitivity, what has no effect, router margin, noise."""
    state = build.random_state(case)
    model = build.model_of(case, state)
    reference = reference_of(case, model)
    margin = build.router_margin(model, [ids for many in build.windows(case).values() for ids in many])
    if margin is not None and margin < LEAST_MARGIN:
        raise Weak("router margin", margin)
    noise = noise_of(case, model, reference)
    if noise["max_token"] > MOST_NOISE or noise["relative_total"] > MOST_TOTAL_NOISE:
        raise Weak("noise", noise["max_token"])
    seen, unseen = {}, []
    for name, change in alter.measure(case, state, reference):
        if any(fnmatch.fnmatch(name, pattern) for pattern in case.unseen):
            assert change < 1e-6, (case.name, name, change)
            unseen.append(name)
        elif change > LEAST:
            seen[name] = change
        else:
            raise Weak(name, change)
    return state, reference, seen, unseen, margin, noise


def write_checkpoint(case, state, directory):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if case.style == "v5":
        config = build.config_of(case.config)
        config.save_pretrained(directory)
    else:
        (directory / "config.json").write_text(json.dumps(case.config, indent=2) + "\n")
    stored = dict(state) | {copy: state[name] for copy, name in case.stored_copy.items()}
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous().clone() if tensor.is_floating_point() else tensor
        for name, tensor in sorted(case.disk(stored).items())
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def read_back(case, directory, reference, attention):
    """Loads the directory as anyone would; the most by which a token's value differs from the reference."""
    model, report = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float32, attn_implementation=attention, experts_implementation="eager",
        output_loading_info=True,
    )
    report = {key: sorted(map(str, value)) for key, value in report.items() if value}
    assert not report, (case.name, report)
    again = reference_of(case, model.eval())
    return max((a - b).abs().max().item() for n in again for a, b in zip(again[n], reference[n]))


def attentions_differ_by(case, directory, reference):
    """Between transformers' two implementations of attention; None where it has but one, or one is wrong."""
    if case.attention == "sdpa" or not build.empty_model(case.config)._supports_sdpa:
        return None
    differ = read_back(case, directory, reference, "sdpa")
    assert differ < 2 * MOST_NOISE, (case.name, differ)
    return float(f"{differ:.1e}")


def saved_names(case, state, directory):
    """How the names that transformers would write differ from those of the directory.

    Of a model made from its config: one that was loaded is saved under the names it was read from.
    """
    model = build.model_of(case, state)
    with tempfile.TemporaryDirectory() as other:
        model.to(torch.bfloat16).save_pretrained(other)
        saved = set(load_file(pathlib.Path(other) / "model.safetensors"))
    ours = set(load_file(directory / "model.safetensors"))
    return {"only_here": sorted(ours - saved)[:4], "only_in_transformers": sorted(saved - ours)[:4]}


def make(case):
    state, reference, seen, unseen, margin, noise = measured(case)
    directory = OUT / case.name
    write_checkpoint(case, state, directory)
    assert read_back(case, directory, reference, case.attention) == 0.0, case.name
    ids = build.windows(case)
    pairs = {
        name: [{"ids": i, "nll_f32": nll.tolist()} for i, nll in zip(ids[name], reference[name])] for name in ids
    }
    expected = {
        "case": case.name,
        "family": case.config["model_type"],
        "about": case.about,
        "made_by": "tests/reference/families",
        "transformers_version": transformers.__version__,
        "torch_version": torch.__version__,
        "config_style": case.style,
        "weights_dtype": "bfloat16",
        "attention": case.attention,
        "seed": case.seed,
        "from_pretrained_agrees": True,
        "names_of_save_pretrained": saved_names(case, state, directory),
        "windows": {"single": pairs["single"][0], "batch": pairs["batch"]},
        "sensitivity": {name: float(f"{value:.3g}") for name, value in seen.items()},
        "no_effect": unseen,
        "float64_differs_by": noise,
        "sdpa_differs_by": attentions_differ_by(case, directory, reference),
    }
    if margin is not None:
        expected["least_router_margin"] = float(f"{margin:.3g}")
    (directory / "expected.json").write_text(rows(expected))
    total = sum(pairs["single"][0]["nll_f32"])
    weakest = min(seen, key=seen.get)
    print(f"{case.name}: {total:.2f}, {len(seen)} alterations, weakest {weakest} {seen[weakest]:.1e}", flush=True)


def rows(value, depth=0):
    """JSON with an entry a line down to the third level, where lists of numbers stay on one."""
    pad = " " * (depth + 1)
    if isinstance(value, dict) and value and depth < 3:
        lines = [f"{pad}{json.dumps(k)}: {rows(v, depth + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + "\n" + " " * depth + "}" + ("\n" if depth == 0 else "")
    return json.dumps(value)


def find_seed(case, tries=150):
    """Notes the first seed with which every alteration shows in seeds.json, or prints what did not."""
    weak = collections.Counter()
    for case.seed in range(tries):
        try:
            measured(case)
        except Weak as error:
            weak[error.args[0]] += 1
            continue
        SEEDS.write_text(json.dumps(json.loads(SEEDS.read_text()) | {case.name: case.seed}, indent=1) + "\n")
        print(case.name, case.seed, flush=True)
        return
    print(case.name, "has no seed:", weak.most_common(6), flush=True)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    names = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    chosen = [case for case in CASES if not names or any(fnmatch.fnmatch(case.name, n) for n in names)]
    for case in chosen:
        case.seed = json.loads(SEEDS.read_text()).get(case.name, 0)
    if "--find-seed" in sys.argv:
        for case in chosen:
            find_seed(case)
        return
    for case in chosen:
        make(case)
    readme.write(OUT, CASES)


main()
