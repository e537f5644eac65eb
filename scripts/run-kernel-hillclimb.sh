#!/usr/bin/env bash
# Climbs one case: run-kernel-hillclimb.sh CASE [options of `hillclimb climb`]; the same command resumes a climb.
#   HILLCLIMB_RUN_TAG   the run's tag; where neither it nor --tag is given, the newest unfinished run goes on,
#                       else a tag is chosen before the baseline
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
hillclimb=$root/.venv/bin/hillclimb
[ $# -gt 0 ] || { echo "usage: run-kernel-hillclimb.sh CASE [options of 'hillclimb climb']" >&2 && exit 2; }
[ -x "$hillclimb" ] || { echo "run-kernel-hillclimb.sh: there is no environment yet; run scripts/setup" >&2 && exit 3; }
case=$1
shift
if [ ! -f "$case/case.yaml" ] && [ ! -f "cases/$case/case.yaml" ] && [ -f "$root/cases/$case/case.yaml" ]; then
    case=$root/cases/$case # called from elsewhere: <family>/<case> of this checkout
fi
exec "$hillclimb" climb "$case" "$@"
