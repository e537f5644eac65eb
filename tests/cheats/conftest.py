from __future__ import annotations

from tests.harness.conftest import _one_torch_thread as _one_torch_thread
from tests.harness.conftest import unread as unread
