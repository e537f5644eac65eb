#!/usr/bin/env bash
# Says what this machine has of what the case needs: check_setup.sh [--build] [--emit-ptx]
#   --build      compile every operator; needs no GPU
#   --emit-ptx   also write the PTX of those for a GPU to a new folder, and say where
# A missing GPU or model is told and is no failure: compiling goes without. Exit status 1 where something else is missing.
set -euo pipefail
. "$(dirname "$0")/environment.sh"
builds= emits= status=0
for option in "$@"; do
    case $option in
    --build) builds=1 ;;
    --emit-ptx) builds=1 emits=1 ;;
    --help | -h) sed -n '2,5s/^# *//p' "$0" && exit ;;
    *) echo "check_setup.sh: $option is no option; there are --build and --emit-ptx" >&2 && exit 2 ;;
    esac
done
told() { printf '%-12s %s\n' "$1" "$2"; }

told hillclimb "$HILLCLIMB"
for package in torch transformers fastapi uvicorn tokenizers safetensors; do
    if version=$("$PYTHON" -c "from importlib.metadata import version; print(version('$package'))" 2>/dev/null); then
        told "$package" "$version"
    else
        told "$package" "missing: pip install 'hillclimb[serving]'" && status=1
    fi
done
gpu=$({ nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || true; } | head -1)
told gpu "${gpu:-none; operators for one are compiled, and not run}"
model=$(cd "$WORKSPACE" && "$PYTHON" -c "from bench.case_model import case_model; print(case_model().path)")
[ -e "$model" ] && told model "$model" || told model "not there yet: $model"
if [ -n "$builds" ]; then
    [ -z "$emits" ] || set -- --emit-ptx "$(mktemp -d)"
    [ -n "$emits" ] || set --
    "$WORKSPACE/scripts/build.sh" "$@" || status=1
    [ -z "$emits" ] || told ptx "$(cd "$2" && ls | wc -l) files in $2"
fi
exit $status
