#!/usr/bin/env bash
# Stamps a new case: --family F --case C [--device cuda] [--model-name NAME] [--model-path PATH] [--hardware TEXT]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
hillclimb=$root/.venv/bin/hillclimb
[ -x "$hillclimb" ] || { echo "new_kernel_case.sh: there is no environment yet; run scripts/setup" >&2 && exit 3; }
cd "$root"
exec "$hillclimb" new-case "$@"
