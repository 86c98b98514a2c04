"""What the scripts beside this one share: NLLs of windows, and the form of expected.json."""

import json
import pathlib

import torch

FIXTURES = pathlib.Path(__file__).resolve().parent / "../fixtures"


def expected(fixture):
    return json.loads((FIXTURES / fixture / "expected.json").read_text(encoding="utf-8"))


@torch.no_grad()
def nlls(model, ids):
    """The NLL of each token after the first, in nats, in float64 from the float32 logits."""
    logits = model(torch.tensor([ids])).logits[0, :-1].double()
    return (-logits.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]).tolist()


def relative(value, reference):
    return abs(value - reference) / abs(reference)


def scored(model, windows):
    """The ids of the windows of a fixture, with what the model makes of them."""

    def one(ids):
        values = nlls(model, ids)
        return {
            "length": len(ids),
            "ids": ids,
            "nll_f32": [float(f"{value:.10g}") for value in values],
            "total_f32": sum(values),
        }

    return {
        "single": one(windows["single"]["ids"]),
        "batch": [one(window["ids"]) for window in windows["batch"]],
    }


def written(value, depth=0):
    """JSON with a list of numbers on a line."""
    inner, lists = " " * (depth + 1), isinstance(value, list) and isinstance(value[0], dict)
    if not lists and not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if lists:
        items = (f"{inner}{written(item, depth + 1)}" for item in value)
    else:
        items = (f"{inner}{json.dumps(key)}: {written(item, depth + 1)}"
                 for key, item in value.items())
    opening, closing = "[]" if lists else "{}"
    return f"{opening}\n" + ",\n".join(items) + f"\n{' ' * depth}{closing}"


def write_expected(path, value):
    (path / "expected.json").write_text(written(value) + "\n", encoding="utf-8")
