#!/usr/bin/env bash
# Judges the working files against the best of a run, and commits them to its branch if they win: run_hillclimb.sh LABEL
#   LABEL               what is tried, in a line; "baseline" measures where the run starts, and judges nothing
#                       other options are those of `hillclimb evaluate`
#   HILLCLIMB_RUN_TAG   the run; without it the newest one that is unfinished, or today's date
set -euo pipefail
. "$(dirname "$0")/scripts/environment.sh"
[ $# -gt 0 ] && [ -n "$1" ] || { echo 'usage: run_hillclimb.sh "what is tried"' >&2 && exit 2; }
label=$1
shift
[ "$label" != baseline ] || exec "$HILLCLIMB" climb "$CASE" --proposer sweep --budget-candidates 0 "$@"
exec "$HILLCLIMB" evaluate "$CASE" --commit --idea "$label" "$@"
