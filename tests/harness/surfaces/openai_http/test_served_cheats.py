"""Servers that look fast because they do less: each is refused at the gate, for its own reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side
from tests.fakes.served import BACKEND, write_served_case

pytestmark = [pytest.mark.xdist_group("served"), pytest.mark.slow(70)]

MADE = "    # MADE"

HEAD, _, REST = BACKEND.partition("    def prefill")
END = "def create_backend" + REST.partition("def create_backend")[2]


def with_methods(methods: str) -> str:
    """The honest server with these in place of its own prefill and decode."""
    return f"{HEAD}{methods}\n\n{END}"


REPLAYED = """
    def prefill(self, slot, tokens):
        self.known, self.steps = getattr(self, "known", {}), getattr(self, "steps", {})
        self.steps[slot], self.is_known = 0, len(tokens) in self.known
        if not self.is_known:
            self.known[len(tokens)] = [super().prefill(slot, tokens)]
        self.answer = self.known[len(tokens)]
        return self.answer[0]

    def decode(self, last):
        if not self.is_known:
            self.answer.append(super().decode(last)[0])
        for slot in last:
            self.steps[slot] += 1
        return torch.stack([self.answer[self.steps[slot]] for slot in last])

    def reset(self, slot):
        if not self.is_known:
            super().reset(slot)
"""

SKIPPED = """
    def decode(self, last):
        layers = self.module.model.layers
        self.module.model.layers = layers[:-1]
        try:
            return super().decode(last)
        finally:
            self.module.model.layers = layers
"""

ONE_TOKEN = """
    def decode(self, last):
        found = torch.zeros(len(last), self.vocabulary)
        found[:, 7] = 9.0
        return found
"""

NOT_A_NUMBER = """
    def decode(self, last):
        return super().decode(last) * float("nan")
"""

STALE = """
    def decode(self, last):
        first = {slot: 1 for slot in last}
        return super().decode(first)
"""

FOUR_BITS = """    with torch.no_grad():
        for name, weight in backend.module.named_parameters():
            if weight.dim() == 2:
                unit = weight.abs().amax(1, keepdim=True) / 7
                weight.copy_((weight / unit).round() * unit)
    # MADE"""

SHORTER = "    backend.context = 12\n    # MADE"

CHEATS = {
    "answers are kept by the prompt's length": (with_methods(REPLAYED), {Reason.WRONG_RESULT}),
    "a layer is skipped once the prompt is read": (with_methods(SKIPPED), {Reason.WRONG_RESULT}),
    "one token all the time": (with_methods(ONE_TOKEN), {Reason.WRONG_RESULT}),
    "no numbers": (with_methods(NOT_A_NUMBER), {Reason.BROKE_PROTOCOL, Reason.WRONG_RESULT}),
    "the token that was made is not read": (with_methods(STALE), {Reason.WRONG_RESULT}),
    "weights of four bits": (BACKEND.replace(MADE, FOUR_BITS), {Reason.WRONG_RESULT}),
    "an answer ends early": (BACKEND.replace(MADE, SHORTER), {Reason.BROKE_PROTOCOL, Reason.TOKEN_COUNT}),
}


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[LocalJudge]:
    folder = write_served_case(tmp_path_factory.mktemp("case"), tiny)
    with closing(LocalJudge(folder, folder / "judge.log")) as one:
        yield one


def ignore(progress: Progress) -> None:
    pass


@pytest.mark.parametrize(("backend", "reasons"), CHEATS.values(), ids=CHEATS)
def test_each_is_refused_for_its_own_reason(
    judge: LocalJudge, tmp_path: Path, backend: str, reasons: set[Reason]
) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "backend.py").write_text(backend)
    report = judge.gate(Side(tree=str(tmp_path / "workspace")), ignore)
    print(report.reason, report.detail[:300])
    assert report.reason in reasons, report.detail
