"""Makes the workspace's modules importable, whatever folder the tests are started from."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
