"""torch.compile's work on a yardstick, done once: `python -m harness.studies.yardstick CASE_FOLDER WORKSPACE`.

Every process of a duel would else try out kernels for minutes. What is compiled here, apart and before anything is
timed, is packed into the workspace, where `variants.COMPILED` unpacks it: the same graph is then found in the cache.
yardstick.py is the case's own fixed file, so it runs without a sandbox here, as the contract does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from harness.candidate.runner import import_kernel
from harness.case.case import Case
from harness.case.contract import load_contract
from harness.device.device import open_device
from harness.judge.pool import keyless_environment
from harness.studies.variants import CACHE, timed_problems

MOST_SECONDS = 1800


def compile_ahead(case_folder: Path, workspace: Path) -> str:
    """Compile the yardstick of a staged case for its timed problems; why that failed, empty where it did not.

    Where it failed, the processes that are timed compile for themselves.
    """
    command = [sys.executable, "-m", "harness.studies.yardstick", str(case_folder), str(workspace)]
    with tempfile.TemporaryDirectory(prefix="hillclimb-yardstick-") as folder:
        environment = {**keyless_environment(), "TMPDIR": folder}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=MOST_SECONDS
            )
        except subprocess.TimeoutExpired:
            return f"compiling it ahead took over {MOST_SECONDS} s"
        if done.returncode:
            return f"could not be compiled ahead: {done.stderr.strip()[-500:] or done.returncode}"
        shutil.make_archive(str(workspace / Path(CACHE).stem), "tar", Path(folder, "inductor"))
    return ""


def main() -> None:
    import torch

    case, workspace = Case(Path(sys.argv[1])), Path(sys.argv[2])
    with closing(open_device(case.settings.device)) as device:
        place = device.torch_device
        contract = load_contract(case.contract_file, place, device.dtypes)
        run = import_kernel(str(workspace), case.settings.entry)
        distribution = case.suites[case.settings.objective.suite].distribution
        for name in timed_problems(case):
            problem = contract.problems[name]
            inputs = contract.inputs(problem, distribution, torch.Generator(place).manual_seed(0))
            outputs = [
                torch.empty(spec.shape, dtype=spec.dtype, device=place)
                for spec in contract.outputs(problem).values()
            ]
            run(*inputs.values(), *outputs, **contract.attributes(problem))
            device.synchronize()


if __name__ == "__main__":
    main()
