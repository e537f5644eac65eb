"""A server of a backend, in a thread of this process, and the real SDK beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from openai import OpenAI

from hillclimb.harness.serving.app import create_app
from hillclimb.harness.serving.backends.backend import Backend
from hillclimb.harness.serving.server import listen_at
from hillclimb.harness.serving.service import Service


@contextmanager
def served(backend: Backend) -> Iterator[OpenAI]:
    """Its client; base_url has the address."""
    listening = listen_at("127.0.0.1", 0)
    port = listening.getsockname()[1]
    service = Service(backend)
    server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    with listening:
        thread.start()
        try:
            with OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()
            service.engine.close()
