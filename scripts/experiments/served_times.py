"""Microseconds a token of a case's own server, in the sandbox, by the ways in which clients ask:
`python -m scripts.experiments.served_times CASE [--rounds 6] [--prompt 128] [--tokens 192] [--output PATH]`.

In one piece and as a stream without logarithms, both with the prompt's time; and as the judge asks, with those of five
tokens, between the first token and the last. Prompts are random, other ones every time. All of it is one part.
"""

from __future__ import annotations

import http.client
import json
import random
import statistics
import time
from collections.abc import Callable

from hillclimb.harness.case.case import Case, find_case
from hillclimb.harness.judge.open_device import open_device
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from hillclimb.harness.serving.confined.confined_server import ConfinedServer, serving_spec
from hillclimb.harness.surfaces.openai_http.client import ServerAddress, UnixConnection, ask
from scripts.experiments import frame

ANSWER_SECONDS = 120.0
Draw = Callable[[], list[int]]


def main() -> None:
    parser = frame.make_parser(__doc__)
    parser.add_argument("case", help="the case's folder, or its name")
    parser.add_argument("--rounds", type=int, default=6, help="answers of each kind (default: 6)")
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt (default: 128)")
    parser.add_argument("--tokens", type=int, default=192, help="tokens of an answer (default: 192)")
    parser.add_argument(
        "--vocabulary", type=int, default=256, help="prompts are of tokens below it (default: 256)"
    )
    given = parser.parse_args()
    output = frame.Output(given.output, {name: getattr(given, name) for name in ("case", "prompt", "tokens")})
    case = Case(find_case(given.case))
    device = open_device("cuda" if case.settings.device == "cuda" else "cpu")
    nodes = device.nodes()
    device.close()
    chance = random.SystemRandom()

    def draw() -> list[int]:
        return [chance.randrange(given.vocabulary) for _ in range(given.prompt)]

    rung = choose_rung(trust_workspace=False, serves=True, devices=nodes)
    with ConfinedServer(rung, serving_spec(case, nodes, {})) as server:
        server.await_ready()
        address = ServerAddress(server.path, case.settings.model or case.name, ANSWER_SECONDS)
        found = [answers(address, draw, given.tokens) for _ in range(given.rounds + 1)][1:]
    rows = {
        way: {"median": round(statistics.median(us), 1), "of each": [round(one, 1) for one in us]}
        for way in found[0]
        for us in [[row[way] for row in found]]
    }
    print(json.dumps(rows, indent=1))
    output.save(microseconds=rows)


def answers(address: ServerAddress, draw: Draw, tokens: int) -> dict[str, float]:
    """Microseconds of one answer of each kind; the first ones of a server are slower."""
    asked = ask(address, draw(), tokens)
    return {
        "in one piece, a token": plain(address, draw(), tokens, is_streamed=False),
        "streamed, a token": plain(address, draw(), tokens, is_streamed=True),
        "as the judge asks, a token": asked.tpot * 1e6,
        "as the judge asks, to the first token": asked.ttft * 1e6,
    }


def plain(address: ServerAddress, prompt: list[int], tokens: int, *, is_streamed: bool) -> float:
    """Microseconds a token, of an answer without logarithms."""
    body = {
        "model": address.model,
        "prompt": prompt,
        "max_tokens": tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": is_streamed,
    }
    with UnixConnection(address) as connection:
        began = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            text = response.read()
    if response.status != http.client.OK:
        raise SystemExit(f"answered with status {response.status}: {text[:400].decode(errors='replace')}")
    return (time.perf_counter() - began) / tokens * 1e6


if __name__ == "__main__":
    main()
