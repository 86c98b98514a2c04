"""Writes src/assay/types.py from the description of the API, openapi/openapi.json.

`python generate.py` writes it, `python generate.py FILE` writes FILE instead; a test compares.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DESCRIPTION = HERE / "../../openapi/openapi.json"
TYPES = HERE / "src/assay/types.py"
HEADER = '"""What the API takes and answers, generated from its description by generate.py."""'
# What the client sends and receives; what hangs on these comes along.
ROOTS = ("JobRequest", "JobOptions", "JobResult", "JobEvent", "Job", "DocumentRow", "TokenRow",
         "Comparison", "ComparisonRequest", "GateResult", "Upload", "Problem")  # fmt: skip
# Not among the options: what every job has.
REQUEST = ("model", "datasets", "method")

Schema = dict[str, Any]


def options(request: Schema) -> Schema:
    """What may be left out of a job's request, as keyword arguments."""
    properties = {key: value for key, value in request["properties"].items() if key not in REQUEST}
    description = "Options of a job."
    return {"type": "object", "description": description, "properties": properties}


def name_parts(schemas: dict[str, Schema]) -> None:
    """Has the lists that may be one object refer to it: the description writes it out twice."""
    for name in [name for name in schemas if name.startswith("OneOrMany_")]:
        part = name.removeprefix("OneOrMany_")
        reference = {"$ref": f"#/components/schemas/{part}"}
        schemas.setdefault(part, schemas[name]["oneOf"][0])
        schemas[name]["oneOf"] = [reference, {"type": "array", "items": reference}]


def adapted(part: Any) -> Any:
    """With integers where the client reads integers, and open to what newer servers add."""
    if isinstance(part, list):
        return [adapted(item) for item in part]
    if not isinstance(part, dict):
        return part
    part = {key: adapted(value) for key, value in part.items()}
    if part.get("additionalProperties") is False:
        del part["additionalProperties"]
    for name, schema in part.get("properties", {}).items():
        # Exact sums travel as strings, which hold every digit in any language.
        if name.endswith("_exact"):
            nullable = schema["type"] == ["string", "null"]
            schema["type"] = ["integer", "null"] if nullable else "integer"
    return part


def references(part: Any) -> set[str]:
    """Names of the schemas that a part of one refers to."""
    if isinstance(part, list):
        return set().union(*map(references, part))
    if not isinstance(part, dict):
        return set()
    if isinstance(reference := part.get("$ref"), str):
        return {reference.rsplit("/", 1)[1]}
    return set().union(*map(references, part.values()))


def reachable(schemas: dict[str, Schema]) -> dict[str, Schema]:
    """The roots and all that they refer to."""
    found, ahead = set[str](), set(ROOTS)
    while ahead:
        found |= ahead
        ahead = set().union(*(references(schemas[name]) for name in ahead)) - found
    return {name: schemas[name] for name in sorted(found)}


def description() -> Schema:
    """The description of the API as it is generated from."""
    whole = json.loads(DESCRIPTION.read_text())
    schemas: dict[str, Schema] = whole["components"]["schemas"]
    name_parts(schemas)
    schemas["JobOptions"] = options(schemas["JobRequest"])
    schemas = adapted(reachable(schemas))
    return {"openapi": whole["openapi"], "info": whole["info"], "paths": {},
            "components": {"schemas": schemas}}  # fmt: skip


def write(target: Path) -> None:
    """Generates the types."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "openapi.json"
        source.write_text(json.dumps(description()))
        command = [sys.executable, "-m", "datamodel_code_generator", "--output", str(target)]
        command += ["--input", str(source), "--input-file-type", "openapi"]
        command += ["--output-model-type", "typing.TypedDict", "--target-python-version", "3.10"]
        command += ["--enum-field-as-literal", "all", "--formatters", "builtin"]
        command += ["--use-schema-description", "--use-field-description"]
        command += ["--custom-file-header", HEADER, "--disable-warnings"]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if sys.argv[1:] else TYPES)
