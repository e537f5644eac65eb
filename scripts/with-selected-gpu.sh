#!/usr/bin/env bash
# Runs a command on one GPU: with-selected-gpu.sh CMD...   (scripts/selected-gpu.sh says how it is chosen)
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: with-selected-gpu.sh CMD..." >&2 && exit 2; }
# shellcheck source=scripts/selected-gpu.sh
source "$(dirname "${BASH_SOURCE[0]}")/selected-gpu.sh"
exec "$@"
