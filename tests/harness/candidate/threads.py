"""Kernels with threads under the profiler: `python -m tests.harness.candidate.threads worker|short-lived`."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hillclimb.harness.candidate.profiler import Profiler, ProfileRow


def profile(call: Callable[[], object], calls: int) -> list[ProfileRow]:
    def run() -> int:
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        return time.perf_counter_ns() - start

    return profiler.measure(run, calls)


def worker() -> list[ProfileRow]:
    """One thread that waits for work, idle for a while before the recording."""
    begin, done, stop = threading.Semaphore(0), threading.Semaphore(0), threading.Event()

    def work() -> None:
        while begin.acquire() and not stop.is_set():
            time.sleep(0.004)
            done.release()

    def call() -> None:
        begin.release()
        done.acquire()
        time.sleep(0.004)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.2)
    rows = profile(call, 5)
    stop.set()
    begin.release()
    thread.join()
    return rows


def short_lived() -> list[ProfileRow]:
    """Two threads in every call."""

    def call() -> None:
        threads = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return profile(call, 4)


if __name__ == "__main__":
    profiler = Profiler(str(Path(__file__).parent))
    profiler.adopt_threads()
    print(json.dumps({"worker": worker, "short-lived": short_lived}[sys.argv[1]]()))
