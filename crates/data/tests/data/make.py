"""Writes the Parquet fixtures with pyarrow 26.0.1, and what they hold as JSON lines beside them.

    pip install pyarrow==26.0.1 && python make.py
"""
import datetime
import json

import pyarrow as pa
import pyarrow.parquet as pq

DOCUMENTS = [
    {"text": "The ferry leaves at 7:45.", "prompt": "Q: when?", "response": " At 7:45.", "lang": "en", "n": 1},
    {"text": "", "prompt": "", "response": "", "lang": "en", "n": 2},
    {"text": "Größe: 12,5 µm — naïve cafés", "prompt": "Größe?", "response": " 12,5 µm", "lang": "de", "n": 1},
    {"text": "two\r\nlines\n", "prompt": "two\n", "response": "lines", "lang": "en", "n": 2},
    {"text": "again and again " * 40, "prompt": "again", "response": " and again", "lang": "de", "n": 3},
]
CHATS = [
    {
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "When does it leave?"},
            {"role": "assistant", "content": "At 7:45."},
        ],
        "topic": "ferry",
    },
    {
        "messages": [
            {"role": "user", "content": "Größe?", "name": "Ann"},
            {"role": "assistant", "content": "12,5 µm"},
            {"role": "user", "content": "Sure?"},
            {"role": "assistant", "content": "Yes — quite."},
        ],
        "topic": "size",
    },
]


def lines(name, records):
    with open(name, "w", encoding="utf-8", newline="\n") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


lines("documents.jsonl", DOCUMENTS)
lines("chats.jsonl", CHATS)

column = {name: [d[name] for d in DOCUMENTS] for name in DOCUMENTS[0]}
count = len(DOCUMENTS)
pq.write_table(
    pa.table(
        {
            "text": pa.array(column["text"]),
            "large": pa.array(column["text"], pa.large_string()),
            "view": pa.array(column["text"], pa.string_view()),
            "coded": pa.array(column["text"]).dictionary_encode(),
            "bytes": pa.array([t.encode() for t in column["text"]], pa.binary()),
            "latin1": pa.array(["x".encode(), b"caf\xe9"] + [b""] * (count - 2), pa.binary()),
            "gaps": pa.array(["a", "b", None] + ["c"] * (count - 3)),
            "prompt": pa.array(column["prompt"]),
            "response": pa.array(column["response"]),
            "lang": pa.array(column["lang"]).dictionary_encode(),
            "n": pa.array(column["n"], pa.int32()),
            "real": pa.array([0.5] * count),
            "day": pa.array([datetime.date(2026, 1, 2)] * count),
            "list": pa.array([["a"]] * count),
        }
    ),
    "documents.parquet",
    row_group_size=2,
    use_dictionary=["coded", "lang"],
    write_page_checksum=True,
)
for codec in ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]:
    for version in ["1.0", "2.0"]:
        pq.write_table(
            pa.table({"text": pa.array(column["text"])}),
            f"{codec}-v{version[0]}.parquet",
            compression=codec,
            data_page_version=version,
            store_schema=False,
        )
pq.write_table(pa.Table.from_pylist(CHATS), "chats.parquet", compression="zstd")
