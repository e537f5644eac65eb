#!/usr/bin/env bash
# Climbs one case: run-kernel-hillclimb.sh CASE [options of `hillclimb climb`]
#   HILLCLIMB_RUN_TAG   the run's tag; chosen once here, before the baseline, where it is not set
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
hillclimb=$root/.venv/bin/hillclimb
[ $# -gt 0 ] || { echo "usage: run-kernel-hillclimb.sh CASE [options of 'hillclimb climb']" >&2 && exit 2; }
[ -x "$hillclimb" ] || { echo "run-kernel-hillclimb.sh: there is no environment yet; run scripts/setup" >&2 && exit 3; }
export HILLCLIMB_RUN_TAG=${HILLCLIMB_RUN_TAG:-$(date +%Y%m%d-%H%M%S)}
echo "run tag: $HILLCLIMB_RUN_TAG"
exec "$hillclimb" climb "$@"
