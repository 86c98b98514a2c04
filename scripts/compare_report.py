"""What bench-compare.py measured, as the text of bench/results/compare.md, and what is wanted of it."""

import math
import platform
import statistics

from service import machine

# What each contestant's column is called.
NAMES = {
    "assay": "Assay",
    "transformers": "transformers",
    "harness": "lm-evaluation-harness",
    "floor": "products alone",
}
# Least rate of Assay over that of another, by the other and dtype, at this window.
RATE_WINDOW = 1024
LEAST = {
    ("transformers", "bfloat16"): 1.7,
    ("transformers", "float32"): 1.2,
    ("harness", "bfloat16"): 1.7,
}
# Most memory of a worker, in this dtype at this window: above its weights, and of transformers'.
MEMORY_CASE = ("bfloat16", 2048)
MOST_ABOVE_WEIGHTS = 300e6
MOST_OF_TRANSFORMERS = 0.5
BYTES = {"float32": 4, "bfloat16": 2}


def table(header, rows):
    """A table whose numbers are right-aligned; None is an empty cell."""
    lines = [f"| {' | '.join(header)} |", "| " + " | ".join("---:" for _ in header) + " |"]
    return lines + ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in rows]


def megabytes(value):
    return None if value is None else f"{value / 1e6:.0f}"


def spread(ratios):
    return f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f} .. {max(ratios):.2f})" if ratios else None


def rms(values, reference):
    return math.sqrt(statistics.fmean((a - b) ** 2 for a, b in zip(values, reference, strict=True)))


class Report:
    """`runs` are all measurements, `trials` those of batch sizes, `tokens` the NLLs of both by dtype at
    the window `reference`."""

    def __init__(self, options, facts, runs, trials, tokens, reference):
        self.options, self.facts, self.runs = options, facts, runs
        self.trials, self.nlls, self.reference = trials, tokens, reference

    def all(self, name, dtype, window, field):
        """A field of a contestant's runs of one case, in the order of the rounds."""
        case = (name, dtype, window)
        return [run[field] for run in self.runs if (run["name"], run["dtype"], run["window"]) == case]

    def median(self, name, dtype, window, field="rate"):
        values = self.all(name, dtype, window, field)
        return statistics.median(values) if values else None

    def ratios(self, name, dtype, window):
        """Assay's rate over that of another, in each round."""
        others = self.all(name, dtype, window, "rate")
        return [own / other for own, other in zip(self.all("assay", dtype, window, "rate"), others)]

    def peak(self, name, dtype, window):
        """Of Assay the largest of all runs; of the others the smallest, one window at a time."""
        peaks = self.all(name, dtype, window, "peak")
        if not peaks or name == "assay":
            return max(peaks, default=None)
        return min(*peaks, self.trials[name, dtype, window][0]["peak"])

    def weights(self, dtype):
        """Bytes of the weights; tied ones count once."""
        return next(run["parameters"] for run in self.runs if run["name"] == "assay") * BYTES[dtype]

    def others(self):
        """Median of the cores that something else used."""
        return statistics.median(run["others"] for run in self.runs)

    def wanted(self):
        """What is wanted of the cases that were measured, with what was found, and whether it is kept."""
        found = []
        for (name, dtype), least in LEAST.items():
            if ratios := self.ratios(name, dtype, RATE_WINDOW):
                ratio = statistics.median(ratios)
                line = f"{dtype}, window {RATE_WINDOW}: Assay does {ratio:.2f} times the tokens/s of {NAMES[name]}"
                found.append((f"{line}; wanted: at least {least}", ratio >= least))
        own, theirs = self.peak("assay", *MEMORY_CASE), self.peak("transformers", *MEMORY_CASE)
        if own is not None:
            case, above = "{}, window {}".format(*MEMORY_CASE), own - self.weights(MEMORY_CASE[0])
            line = f"{case}: a worker takes {megabytes(above)} MB at most above its weights"
            found.append((f"{line}; wanted: at most {megabytes(MOST_ABOVE_WEIGHTS)} MB", above <= MOST_ABOVE_WEIGHTS))
            line = f"{case}: a worker takes {own / theirs:.2f} of the memory of transformers"
            found.append((f"{line}; wanted: at most {MOST_OF_TRANSFORMERS}", own <= MOST_OF_TRANSFORMERS * theirs))
        return found

    def cases(self):
        return [(dtype, window) for dtype in self.options.dtypes for window in self.options.windows]

    def conditions(self):
        own = next(run for run in self.runs if run["name"] == "assay")
        versions = {}
        for run in self.runs:
            versions |= run.get("versions", {})
        batches = {
            (name, batch) for name in ("transformers", "harness") for batch in self.batches(name) if batch is not None
        }
        sizes = "; ".join(f"{NAMES[name]} {size}" for name, size in sorted(batches, reverse=True))
        return [
            f"* Machine: {machine()}",
            f"* Assay {own['version']} (commit {self.options.commit}), device kind {', '.join(own['kinds'])}, "
            "PostgreSQL of `assay up` (durable)",
            f"* {', '.join(f'{name} {version}' for name, version in sorted(versions.items()))}, "
            f"Python {platform.python_version()}",
            f"* Date: {self.facts['date']}; load average before: {self.facts['load']:.2f}; cores used by others "
            f"meanwhile: {self.others():.2f} (median), {max(run['others'] for run in self.runs):.2f} (most)",
            f"* Command: `{self.options.command}`",
            f"* All: {self.options.devices}, {own['tokens']} tokens of {self.facts['source']} as one document, "
            "convention `rolling`; the weights of the demo checkpoint as one bfloat16 safetensors file",
            f"* Windows at a time, the faster of 1 and 2 for each case: {sizes}",
            "",
        ]

    def batches(self, name):
        sizes = sorted({run["batch"] for run in self.runs if run["name"] == name})
        return [" and ".join(map(str, sizes))] if sizes else []

    def rates(self, dtype):
        rows = []
        for window in self.options.windows:
            medians = {name: self.median(name, dtype, window) for name in NAMES}
            row = [window, *(None if value is None else f"{value:.1f}" for value in medians.values())]
            row += [spread(self.ratios(name, dtype, window)) for name in ("transformers", "harness")]
            row.append(f"{statistics.median(self.ratios('floor', dtype, window)):.0%}")
            row.append(f"{self.median('assay', dtype, window, 'distributed'):.1f}")
            rows.append(row)
        header = ["window", *(f"{name}, tokens/s" for name in NAMES.values())]
        header += [f"Assay / {NAMES[name]}" for name in ("transformers", "harness")]
        header += ["Assay / products alone", "Assay without the queue, tokens/s"]
        return [f"## Tokens per second in {dtype}", "", *table(header, rows), ""]

    def rounds(self):
        rows = []
        for dtype, window in self.cases():
            for number in range(self.options.rounds):
                values = [self.all(name, dtype, window, "rate") for name in NAMES]
                row = [f"{found[number]:.1f}" if found else None for found in values]
                ratio = self.ratios("transformers", dtype, window)[number]
                rows.append([dtype, window, number + 1, *row, f"{ratio:.2f}"])
        header = ["dtype", "window", "round", *(f"{name}, tokens/s" for name in NAMES.values())]
        return ["## Every round", "", *table([*header, "Assay / transformers"], rows), ""]

    def memory(self):
        rows = []
        for dtype, window in self.cases():
            peaks = [self.peak(name, dtype, window) for name in ("assay", "transformers", "harness")]
            imported = min(self.all("transformers", dtype, window, "imported"))
            above = peaks[0] - self.weights(dtype)
            sizes = [self.weights(dtype), peaks[0], above, peaks[1], imported, peaks[2]]
            rows.append([dtype, window, *map(megabytes, sizes), f"{peaks[0] / peaks[1]:.2f}"])
        header = ["dtype", "window", "weights, MB", "Assay's worker, MB", "of that above the weights"]
        header += ["transformers, MB", "of that before it loads", "lm-evaluation-harness, MB", "Assay / transformers"]
        server = max(run["server_peak"] for run in self.runs if run["name"] == "assay")
        return [
            "## Memory",
            "",
            "The largest resident set of a fresh process (`VmHWM`): of Assay the largest of all rounds, of the others "
            "the smallest with one window at a time. *Before it loads*: Python and torch alone, of which the package "
            f"index has none without CUDA. Assay's server took {megabytes(server)} MB at most; PostgreSQL is not in "
            "it.",
            "",
            *table(header, rows),
            "",
        ]

    def totals(self):
        rows = []
        for dtype, window in self.cases():
            nlls = {name: self.median(name, dtype, window, "nll") for name in ("assay", "transformers", "harness")}
            exact = self.median("assay", "float32", window, "nll")
            row = [dtype, window, self.all("assay", dtype, window, "tokens")[0]]
            row += [None if nll is None else f"{nll:.3f}" for nll in nlls.values()]
            row += [None if None in (nll, exact) else f"{nll / exact - 1:+.1e}" for nll in nlls.values()]
            rows.append(row)
        names = [NAMES[name] for name in ("assay", "transformers", "harness")]
        header = ["dtype", "window", "tokens", *(f"{name}, nat" for name in names)]
        return [
            "## The numbers",
            "",
            "Total NLLs, and how far each is from Assay's in float32. In bfloat16 the harness also takes its "
            "log-softmax and its sums in bfloat16, unless it is told otherwise.",
            "",
            *table(header + [f"{name}, relative" for name in names], rows),
            "",
        ]

    def tokens(self):
        if "float32" not in self.nlls:
            return []
        exact = self.nlls["float32"]["assay"]
        rows = [
            [dtype, *(f"{rms(nlls[name], exact):.2e}" for name in ("assay", "transformers"))]
            for dtype, nlls in self.nlls.items()
        ]
        return [
            f"Token by token at window {self.reference}, the root mean square of the difference to Assay's NLL in "
            "float32:",
            "",
            *table(["dtype", "Assay, nat", "transformers, nat"], rows),
            "",
        ]

    def text(self):
        lines = [
            "# Assay beside transformers and lm-evaluation-harness",
            "",
            "Written by `make bench-compare` (scripts/bench-compare.sh). Medians over the rounds, and of the ratios of "
            "each round; in a round every contestant runs once. Assay's time goes from `POST /jobs` until the job has "
            "succeeded: the queue, the plan and every commit are in it, loading the model is not. Of transformers (the "
            "loop of its documentation, bench/compare) and the harness neither loading nor tokenizing is timed, which "
            "favours them. *Products alone* are the matrix products of the model without anything between them, the "
            "fastest of four times.",
            "",
            *self.conditions(),
        ]
        for dtype in self.options.dtypes:
            lines += self.rates(dtype)
        lines += [*self.memory(), *self.totals(), *self.tokens(), *self.rounds()]
        if wanted := self.wanted():
            lines += ["## Wanted", ""]
            lines += [f"* {line}: {'kept' if kept else '**missed**'}" for line, kept in wanted]
        return "\n".join(lines).rstrip() + "\n"
