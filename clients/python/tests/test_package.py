"""The package agrees with the API, and its README with both."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import MODEL, ROOT, jsonl, paragraphs
from service import Service

import assay

PACKAGE = ROOT / "clients/python"


def test_the_types_are_those_of_the_description(tmp_path: Path) -> None:
    generated = tmp_path / "types.py"
    subprocess.run([sys.executable, PACKAGE / "generate.py", generated], check=True)
    committed = (PACKAGE / "src/assay/types.py").read_text()
    assert generated.read_text() == committed, "run clients/python/generate.py"


def test_the_version_is_that_of_the_service() -> None:
    description = json.loads((ROOT / "openapi/openapi.json").read_text())
    assert assay.__version__ == description["info"]["version"]


@pytest.mark.parametrize("readme", [PACKAGE / "README.md", ROOT / "README.md"])
def test_the_examples_of_a_readme_run(
    service: Service, monkeypatch: pytest.MonkeyPatch, readme: Path
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    assert blocks
    example = "\n".join(blocks)
    monkeypatch.setenv("ASSAY_SERVER", service.url)
    (service.roots[3] / "held-out.jsonl").write_text(jsonl(paragraphs(20, 150)))
    for name in ("base", "candidate", "my-checkpoint"):
        target = service.roots[1] / name
        if not target.exists():
            target.symlink_to(service.roots[1] / MODEL)
    known: dict[str, Any] = {}
    exec(compile(example, readme, "exec"), known)  # noqa: S102
    results = [value for value in known.values() if isinstance(value, assay.Result)]
    assert results
    for result in results:
        answered = service.call(f"/jobs/{result.job_id}/results")
        assert result.datasets[0]["nll_exact"] == int(answered["datasets"][0]["nll_exact"])
