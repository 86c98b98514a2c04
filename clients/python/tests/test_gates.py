"""Comparisons and gates: the verdicts and the numbers are the service's."""

from __future__ import annotations

import pytest
from conftest import BROKEN, DATASET, MODEL, NOISY
from service import Service

import assay

METHOD: assay.types.MethodRequest = {"window": 64}


def test_a_comparison_is_that_of_the_service(
    service: Service, client: assay.Client, scored: dict[str, str]
) -> None:
    body = {"baseline": scored[MODEL], "candidate": scored[NOISY], "documents": 2}
    answered = service.call("/comparisons", body)
    found = client.compare(scored[MODEL], client.results(scored[NOISY]), documents=2)
    row, expected = found["datasets"][0], answered["datasets"][0]
    assert row["nll_difference_exact"] == int(expected.pop("nll_difference_exact"))
    assert {key: row.get(key) for key in expected} == expected
    sums = [client.results(scored[name])[DATASET]["nll_exact"] for name in (MODEL, NOISY)]
    assert sums[0] is not None and sums[1] is not None
    assert row["nll_difference_exact"] == sums[1] - sums[0]


def test_verdicts(client: assay.Client, scored: dict[str, str]) -> None:
    same = client.submit(MODEL, DATASET, METHOD)
    passed = client.gate(same, scored[MODEL], 0.01)
    assert passed.passed and passed.raise_for_failure() is passed

    failed = client.gate(scored[NOISY], scored[MODEL], 0.0)
    assert (failed.verdict, failed.passed) == ("fail", False)
    assert failed.comparison and failed.comparison["datasets"][0]["verdict"] == "fail"
    with pytest.raises(assay.GateFailed) as raised:
        failed.raise_for_failure()
    assert raised.value.verdict is failed and failed.reason in str(raised.value)

    # The increase itself is the limit: its interval holds it.
    increase = failed.comparison["datasets"][0].get("difference")
    open_ = client.gate(scored[NOISY], scored[MODEL], increase, datasets=[DATASET])
    assert (open_.verdict, open_.passed) == ("inconclusive", False)
    with pytest.raises(assay.GateFailed, match="inconclusive"):
        open_.raise_for_failure()


def test_a_gate_that_a_job_was_posted_with(client: assay.Client, scored: dict[str, str]) -> None:
    tags = {"branch": scored[MODEL]}
    baseline = client.submit(MODEL, DATASET, METHOD, tags=tags)
    client.wait(baseline)
    tag: assay.types.TaggedJob = {"tag": f"branch:{scored[MODEL]}"}
    job = client.submit(
        NOISY, DATASET, METHOD, gate={"baseline": tag, "max_increase": 0.0}, reuse=False
    )
    stored, given = client.gate(job), client.gate(job, tag, 0.0)
    assert stored.comparison and stored.comparison["baseline"] == baseline["id"]
    assert (stored.verdict, stored.comparison) == (given.verdict, given.comparison)
    assert str(stored.comparison["datasets"][0].get("reason")) in given.reason


def test_what_cannot_be_judged_does_not_pass(client: assay.Client, scored: dict[str, str]) -> None:
    broken = client.submit(BROKEN, DATASET, METHOD)
    failed = client.gate(broken, scored[MODEL], 0.01)
    assert (failed.verdict, failed.comparison) == ("inconclusive", None)
    assert "E2003" in failed.reason and broken["id"] in failed.reason

    other = client.submit(MODEL, DATASET, {"window": 32})
    differs = client.gate(other, scored[MODEL], 0.01)
    assert (differs.verdict, differs.comparison) == ("inconclusive", None)
    assert "method" in str(differs.differences)


def test_half_a_gate_is_refused(client: assay.Client, scored: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="both"):
        client.gate(scored[NOISY], scored[MODEL])
    with pytest.raises(assay.AssayError) as without:
        client.gate(scored[NOISY])
    assert without.value.status == 404
