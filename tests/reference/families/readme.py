"""Writes README.md beside the fixtures from what their expected.json say."""

import json

HEAD = """# Every model family, small

Random-weight checkpoints of the families that a decoder reads, in the form found on the hub (names, fused
layouts, `config.json`), without tokenizers. Made by `reference/families` from nothing but the seeds in it:

    pip install torch=={torch} transformers=={transformers}
    python tests/reference/families

Weights are stored as bfloat16. The reference values are transformers' own: weights upcast to float32, float32
arithmetic, eager attention (`attention` says where not), on one CPU thread; log-softmax in float64 from the float32
logits. `nll[i]` is `-ln p(ids[i+1] | ids[0..i])` in nats.

## expected.json

* `windows.single`: 96 random ids. `windows.batch`: 17, 64 and 96 ids, each scored alone. Per window `ids` and
  `nll_f32`.
* `sensitivity`: the relative change of the total of `windows.single` (or of the first of `batch`, where the name
  says 17 ids) when one piece is wrong: a field of the config, a bias or a norm dropped, the rows of a matrix in
  another order, a layout misread. Every one is above 1e-3, or the script fails. `no_effect` names what must not
  matter, and does not (below 1e-6).
* `config_style`: `v4` is the form found on the hub (`rope_theta`, `rope_scaling`, `torch_dtype`); `v5` is what
  transformers 5 writes (`rope_parameters`, `dtype`).
* `from_pretrained_agrees`: `AutoModelForCausalLM.from_pretrained` reads the directory with no key missing or
  left over, and gives the same values to the last bit.
* `names_of_save_pretrained`: where transformers {transformers} would save under other names, the first of them.
* `float64_differs_by`: how far `nll_f32` of `single` is from transformers in float64 (which still casts to
  float32 in places), in nats a token and relative on the total.
* `sdpa_differs_by`: the most by which a token's value changes with transformers' other attention; null where there
  is none, or for `falcon_alibi`, whose reference is sdpa: eager attention of 5.24 adds alibi twice.
* `least_router_margin`: the least gap between the last chosen and the first refused router logit.

eps values are larger than in real models on purpose, so that a hard-coded eps shows. Where two kinds of GELU are
told apart, the last layer's activation is moved to where they differ.

## What transformers {transformers} makes of them

* A sliding window of w lets a token see itself and the w - 1 tokens before it.
* longrope: a window longer than `original_max_position_embeddings` (which Phi-3 keeps beside `rope_scaling`) uses the
  long factors for all of its positions. The attention factor, from max_position_embeddings / original, goes with both.
* Gemma reads `hidden_act: gelu` as the tanh form. Gemma 2 alternates from a sliding layer on; Gemma 3 has a full layer
  every `sliding_window_pattern` (6 when left out), and `rope_scaling` is for its full layers only.
* Qwen 2 and 3: with `use_sliding_window`, layers from `max_window_layers` on slide, unless `layer_types` says.
* Qwen 3 with experts is saved with `num_local_experts`, found on the hub as `num_experts`.
* Mixtral always normalises the chosen experts' weights.
* GPT-NeoX's head is `embed_out` on disk. OPT's positions begin at row 2 of their table.
* Falcon adds alibi before the scores are divided by the root of the head size. Its slopes, and slope times position,
  are rounded to bfloat16 even in a float32 model; without that, tokens of `falcon_alibi` move by hundredths of a nat.

| case | what | style | NLL | alterations | weakest |
|---|---|---|---|---|---|
"""


def row(case, directory):
    expected = json.loads((directory / "expected.json").read_text())
    tests = expected["sensitivity"]
    weakest = min(tests, key=tests.get)
    total = sum(expected["windows"]["single"]["nll_f32"])
    return expected, (
        f"| {case.name} | {case.about} | {case.style} | {total:.4f} | {len(tests)} "
        f"| {weakest} {tests[weakest]:.1e} |\n"
    )


def write(out, cases):
    rows = [row(case, out / case.name) for case in cases if (out / case.name / "expected.json").exists()]
    made = rows[0][0]
    head = HEAD.format(torch=made["torch_version"].partition("+")[0], transformers=made["transformers_version"])
    (out / "README.md").write_text(head + "".join(line for _, line in rows))
