#!/usr/bin/env bash
# Where the time of a decoded token goes, by torch's profiler. Knobs: SERVE_STEP=loop profile.sh
set -euo pipefail
. "$(dirname "$0")/environment.sh"
cd "$WORKSPACE"
exec "$PYTHON" -m bench.profile
