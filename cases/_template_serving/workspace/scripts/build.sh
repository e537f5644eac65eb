#!/usr/bin/env bash
# Compiles every operator of ops/; needs no GPU. Build.sh [--emit-ptx FOLDER] also writes PTX there, where there is any.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
if [ "${1:-}" = --emit-ptx ]; then
    EMIT_PTX=$(mkdir -p "${2:?name the folder for PTX}" && cd "$2" && pwd -P)
    export EMIT_PTX
fi
cd "$WORKSPACE"
exec "$PYTHON" -m bench.build
