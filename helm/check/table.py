"""The table of settings in the chart's README: made from values.yaml, whose comments are its text.

table.py CHART says whether README.md has the table that values.yaml makes; with --write it puts it there.
"""

import json
import re
import sys
from pathlib import Path

import yaml

BEGIN, END = "<!-- settings: helm/check/table.py --write -->", "<!-- end of settings -->"
# Maps that are one setting: what is in them is the user's, or explained with the whole.
WHOLE = {
    "affinity", "annotations", "env", "labels", "nodeSelector", "podAnnotations", "resources",
    "workerPools",
}  # fmt: skip


def settings(chart):
    """Path, default and comment of each setting, in the order of the file."""
    lines = (chart / "values.yaml").read_text().splitlines()
    root = yaml.compose("\n".join(lines))

    def comment(line):
        text = []
        while line > 0 and (found := re.match(r"\s*# ?(.*)", lines[line - 1])):
            text.insert(0, found[1])
            line -= 1
        return " ".join(text)

    def walk(node, path):
        for key, value in node.value:
            name = f"{path}.{key.value}".lstrip(".")
            inline = key.start_mark.line == value.start_mark.line
            if isinstance(value, yaml.MappingNode) and not inline and key.value not in WHOLE:
                if text := comment(key.start_mark.line):
                    yield name, "", text
                yield from walk(value, name)
            else:
                default = yaml.safe_load(yaml.serialize(value))
                yield name, f"`{json.dumps(default)}`", comment(key.start_mark.line)

    yield from walk(root, "")


def table(chart):
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for name, default, text in settings(chart):
        rows.append(f"| `{name}` | {default} | {text.replace('|', chr(92) + '|')} |")
        # The first comment of the file is about the file.
        if not text:
            raise SystemExit(f"values.yaml: {name} has no comment")
    return "\n".join(rows)


def main():
    chart = Path(next(argument for argument in sys.argv[1:] if argument != "--write"))
    readme = chart / "README.md"
    old = readme.read_text()
    before, rest = old.split(BEGIN)
    _, after = rest.split(END)
    new = f"{before}{BEGIN}\n\n{table(chart)}\n\n{END}{after}"
    if "--write" in sys.argv:
        readme.write_text(new)
    elif new != old:
        raise SystemExit(f"{readme} has another table; run: helm/check/table.py --write {chart}")


if __name__ == "__main__":
    main()
