from __future__ import annotations

from tests.harness.judge.conftest import _one_torch_thread as _one_torch_thread
from tests.harness.judge.conftest import unread as unread
