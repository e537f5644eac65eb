"""What others measure servers with, each in an environment of its own, against a server of a tiny model."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hillclimb.harness.serving.backends.transformers_backend import TransformersBackend
from tests.harness.serving.conftest import served
from tests.harness.serving.environments import make_environment

REQUESTS, TOKENS = 20, 24


def run(command: list[str], folder: Path) -> None:
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON", "HF_"))
    }
    done = subprocess.run(
        command, cwd=folder, env={**kept, "HF_HOME": str(folder / "hub")}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.slow(60)
def test_aiperf_gets_every_token(tiny: Path, tmp_path: Path) -> None:
    programs = make_environment(tmp_path / "environment", "aiperf")
    with served(TransformersBackend(tiny, model="tiny", slots=4)) as client:
        address = str(client.base_url).removesuffix("/v1/")
        options = (
            f"--model tiny --url {address} --endpoint-type chat --streaming --tokenizer {tiny} "
            f"--request-count {REQUESTS} --concurrency 4 --isl 40 --isl-stddev 0 --osl {TOKENS} --osl-stddev 0 "
            f"--extra-inputs ignore_eos:true --extra-inputs min_tokens:{TOKENS} --extra-inputs temperature:0 "
            "--use-server-token-count --ui-type none --random-seed 7 --output-artifact-dir out"
        )
        run([str(programs / "aiperf"), "profile", *options.split()], tmp_path)
    told = read(tmp_path / "out" / "profile_export_aiperf.json")
    assert told["request_count"]["avg"] == REQUESTS
    assert told["error_summary"] == [] and not told["was_cancelled"]
    assert told["output_token_count"]["sum"] == REQUESTS * TOKENS
    assert told["output_token_count"]["min"] == told["output_token_count"]["max"] == TOKENS
    assert 0 < told["time_to_first_token"]["avg"] < told["request_latency"]["avg"]


@pytest.mark.slow(90)
def test_guidellm_gets_every_token(tiny: Path, tmp_path: Path) -> None:
    programs = make_environment(tmp_path / "environment", "guidellm")
    with served(TransformersBackend(tiny, model="tiny", slots=4)) as client:
        address = str(client.base_url).removesuffix("/v1/")
        options = (
            f"--backend kind=openai_http,target={address},model=tiny --profile kind=concurrent,streams=4 "
            f"--constraint kind=max_requests,count={REQUESTS} --tokenizer kind=hf_auto,model={tiny} "
            f"--data kind=synthetic_text,prompt_tokens=40,output_tokens={TOKENS} "
            "--output kind=json,path=out.json --disable-console"
        )
        run([str(programs / "guidellm"), "run", *options.split()], tmp_path)
    (told,) = read(tmp_path / "out.json")["benchmarks"]
    totals, tokens = told["metrics"]["request_totals"], told["metrics"]["output_token_count"]["successful"]
    assert totals == {"successful": REQUESTS, "errored": 0, "incomplete": 0, "total": REQUESTS}
    assert tokens["total_sum"] == REQUESTS * TOKENS and tokens["min"] == tokens["max"] == TOKENS
    assert told["metrics"]["time_to_first_token_ms"]["successful"]["min"] > 0
