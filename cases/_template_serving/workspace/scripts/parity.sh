#!/usr/bin/env bash
# Compares the backend with the untouched model on a few prompts. Knobs: SERVE_STEP=loop parity.sh
set -euo pipefail
. "$(dirname "$0")/environment.sh"
cd "$WORKSPACE"
exec "$PYTHON" -m bench.parity
