"""What a command printed: metrics, or what is wrong with it by its name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.case.metrics import Metric
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason
from hillclimb.harness.surfaces.shell_json.output import MAX_LINE_CHARACTERS, OutputFault, read_metrics

METRICS = {
    "rate": Metric(unit="tok/s", direction="higher"),
    "memory": Metric(unit="MiB", direction="lower"),
}

GOOD = b'{"rate": 12.5, "memory": {"value": 3, "unit": "MiB"}}'

MALFORMED: dict[OutputFault, list[bytes]] = {
    OutputFault.EMPTY: [b"", b" \n\t\n"],
    OutputFault.NOT_TEXT: [GOOD + b"\n\xff"],
    OutputFault.NO_JSON: [b"12.5", b"rate 3\nmemory 4", b"NaN", b"[1, 2]"],
    OutputFault.TOO_LONG: [b'{"rate": ' + b" " * MAX_LINE_CHARACTERS + b"1}"],
    OutputFault.BAD_JSON: [
        b"{rate: 1}",
        b'{"rate": 1',
        GOOD + b" {}",
        b'{"rate": ' + b"[" * 3000,
        b'{"rate": ' + b"1" * 5000 + b"}",
    ],
    OutputFault.KEY_TWICE: [b'{"rate": 1, "memory": 1, "rate": 2}'],
    OutputFault.MISSING_METRIC: [b"{}", b'{"rate": 1}', GOOD + b"\n{}"],
    OutputFault.UNKNOWN_METRIC: [b'{"rate": 1, "memory": 1, "wall": 1}'],
    OutputFault.NOT_A_NUMBER: [
        b'{"rate": "12", "memory": 1}',
        b'{"rate": true, "memory": 1}',
        b'{"rate": null, "memory": 1}',
        b'{"rate": [1], "memory": 1}',
        b'{"rate": {"value": 1}, "memory": 1}',
        b'{"rate": {"value": "1", "unit": "tok/s"}, "memory": 1}',
    ],
    OutputFault.NOT_FINITE: [
        b'{"rate": NaN, "memory": 1}',
        b'{"rate": Infinity, "memory": 1}',
        b'{"rate": 1e999, "memory": 1}',
        b'{"rate": 1' + b"0" * 400 + b', "memory": 1}',
    ],
    OutputFault.NOT_POSITIVE: [b'{"rate": 0, "memory": 1}', b'{"rate": -1, "memory": 1}'],
    OutputFault.OUT_OF_RANGE: [b'{"rate": 1e300, "memory": 1}', b'{"rate": 1e-300, "memory": 1}'],
    OutputFault.WRONG_UNIT: [b'{"rate": {"value": 1, "unit": "ms"}, "memory": 1}'],
}


def test_every_fault_has_an_example() -> None:
    assert set(MALFORMED) == set(OutputFault)


@pytest.mark.parametrize(
    ("fault", "printed"),
    [
        pytest.param(fault, printed, id=f"{fault}-{number}")
        for fault, examples in MALFORMED.items()
        for number, printed in enumerate(examples)
    ],
)
def test_malformed_output_is_named(fault: OutputFault, printed: bytes) -> None:
    with pytest.raises(CandidateFault) as caught:
        read_metrics(printed, METRICS)
    assert caught.value.reason is Reason.BROKE_PROTOCOL
    assert caught.value.detail.startswith(f"{fault}: ")
    assert len(caught.value.detail) < 600


@pytest.mark.parametrize(
    "printed",
    [
        GOOD,
        b"loading\n" + GOOD + b"\n",
        b'{"rate": 1}\n' + GOOD + b"\n[note] done\n",
        b'{"memory": 3, "rate": 12.5}',
        b"  " + GOOD + b"\r\n",
    ],
    ids=["alone", "after text", "before text", "without units", "among blanks"],
)
def test_the_last_line_with_a_brace_counts(printed: bytes) -> None:
    assert read_metrics(printed, METRICS) == {"rate": 12.5, "memory": 3.0}


@pytest.mark.parametrize("said", ["token 3 is not the best", "", None])
def test_a_command_says_that_it_is_wrong(said: str | None) -> None:
    with pytest.raises(CandidateFault, match="the command says: ") as caught:
        read_metrics(json.dumps({"wrong": said, "rate": 1}).encode(), METRICS)
    assert caught.value.reason is Reason.WRONG_RESULT


@pytest.mark.parametrize("printed", [b"", b"done", b"{}", b"[1]"])
def test_without_metrics_nothing_need_be_printed(printed: bytes) -> None:
    assert read_metrics(printed, {}) == {}


@given(st.binary(max_size=200))
def test_whatever_is_printed_has_a_name(printed: bytes) -> None:
    with pytest.raises(CandidateFault) as caught:
        read_metrics(printed, METRICS)
    assert caught.value.detail.partition(":")[0] in set(OutputFault)


@given(
    st.dictionaries(
        st.sampled_from(["rate", "memory", "wrong", "x"]),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    )
)
def test_an_object_is_taken_exactly_where_it_is_whole(said: dict[str, object]) -> None:
    values = [said.get(name) for name in METRICS]
    is_whole = set(said) == set(METRICS) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and 1e-30 <= value <= 1e30
        for value in values
    )
    try:
        found = read_metrics(json.dumps(said).encode(), METRICS)
    except CandidateFault:
        assert not is_whole
    else:
        assert list(found.values()) == values
