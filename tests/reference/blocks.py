"""Makes crates/checkpoint/tests/data/blocks.json: blocks of every quantised format, and their values.

    pip install gguf==0.19.0
    python blocks.py

Of each format: some blocks in full, with scales at the edges of float16, and the SHA-256 of the
values of these and of many more blocks. The bytes of those are SHA-256 digests of the format's name
and a counter; scales that would be infinite or no number are made finite.
"""

import hashlib
import importlib.metadata
import json
import pathlib

import numpy
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

OUTPUT = pathlib.Path(__file__).parents[2] / "crates/checkpoint/tests/data/blocks.json"
# Where a block has its float16 numbers: a scale, and a minimum or its unit.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ4_NL": [0],
}
# Subnormal, negative, close to the largest, and none.
EDGES = [
    [0.0123, -1.75, 6e-8, 60000.0, -0.0, -0.0007],
    [-0.2, 3.5, -6e-8, -60000.0, 0.0, 0.11],
]
# As many values as fill a tensor of 48 rows of 10752.
VALUES = 48 * 10752


def random_bytes(name, count):
    digests = -(-count // 32)
    parts = [hashlib.sha256(f"{name} {at}".encode()).digest() for at in range(digests)]
    return bytearray(b"".join(parts)[:count])


def blocks(name, kind):
    elements, size = GGML_QUANT_SIZES[kind]
    count = VALUES // elements
    stored = random_bytes(name, count * size)
    for block in range(count):
        for which, at in enumerate(HALVES[name]):
            at += block * size
            if block < len(EDGES[which]):
                stored[at : at + 2] = numpy.float16(EDGES[which][block]).tobytes()
            elif stored[at + 1] & 0x7C == 0x7C:
                stored[at + 1] ^= 0x40
    return stored, size


def main():
    version = importlib.metadata.version("gguf")
    made = {
        "made_with": f"blocks.py and gguf {version} (Python), gguf.quants.dequantize; values are "
        "float32 bits, little endian"
    }
    for name, halves in HALVES.items():
        kind = GGMLQuantizationType[name]
        stored, size = blocks(name, kind)
        rows = numpy.frombuffer(stored, dtype=numpy.uint8).reshape(1, -1)
        values = quants.dequantize(rows, kind).astype("<f4")
        assert numpy.isfinite(values).all()
        shown = 6 if size < 64 else 3
        elements = GGML_QUANT_SIZES[kind][0]
        made[name] = {
            "ggml_type": int(kind),
            "block_bytes": size,
            "halves": halves,
            "edges": bytes(stored[: 6 * size]).hex(),
            "values": values[0, : shown * elements].tobytes().hex(),
            "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
        }
    OUTPUT.write_text(json.dumps(made, indent=1) + "\n")


main()
