# Sourced by the other scripts: CASE and WORKSPACE are folders, HILLCLIMB and PYTHON commands.
WORKSPACE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
CASE=$(dirname "$WORKSPACE")
HILLCLIMB=$(command -v hillclimb || true)
above=$CASE
while [ "$above" != / ]; do
    above=$(dirname "$above")
    [ ! -x "$above/.venv/bin/hillclimb" ] || { HILLCLIMB=$above/.venv/bin/hillclimb && break; }
done
if [ -z "$HILLCLIMB" ]; then
    echo "$(basename "$0"): hillclimb is not installed; run scripts/setup, or pip install 'hillclimb[serving]'" >&2
    exit 3
fi
PYTHON=$(dirname "$HILLCLIMB")/python
export PYTHONDONTWRITEBYTECODE=1 # a workspace holds sources only
