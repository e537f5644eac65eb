# shellcheck shell=bash
# Source this: pins CUDA_VISIBLE_DEVICES to the UUID of one GPU, which means the same card to every program.
#   HILLCLIMB_GPU   index or UUID of the GPU; where it is not set, the idlest one of those already visible
# Returns 3 and changes nothing where there is no such GPU.

# The chosen GPU's UUID, from `index, uuid, utilisation, memory used` lines on standard input.
_hillclimb_choose_gpu() {
    awk -F ', *' -v wanted="${HILLCLIMB_GPU:-}" -v visible="${CUDA_VISIBLE_DEVICES:-}" '
        function is_in(list,    parts, count, i) {
            count = split(list, parts, ",")
            for (i = 1; i <= count; i++)
                if (parts[i] == $1 || (parts[i] ~ /^GPU-/ && index($2, parts[i]) == 1)) return 1
            return 0
        }
        wanted != "" && is_in(wanted) { print $2; exit }
        wanted == "" && (visible == "" || is_in(visible)) {
            load = $3 * 1000000 + $4
            if (best == "" || load < least) { best = $2; least = load }
        }
        END { if (best != "") print best }'
}

_hillclimb_select_gpu() {
    local listing chosen
    if ! listing=$(nvidia-smi --query-gpu=index,uuid,utilization.gpu,memory.used --format=csv,noheader,nounits 2>&1); then
        echo "selected-gpu: no GPU here: nvidia-smi is missing or failed (${listing##*$'\n'})" >&2
        return 3
    fi
    chosen=$(_hillclimb_choose_gpu <<<"$listing")
    if [ -z "$chosen" ]; then
        echo "selected-gpu: no GPU matches HILLCLIMB_GPU='${HILLCLIMB_GPU:-}' CUDA_VISIBLE_DEVICES='${CUDA_VISIBLE_DEVICES:-}'" >&2
        echo "              set HILLCLIMB_GPU to an index or UUID of: $(tr '\n' ';' <<<"$listing")" >&2
        return 3
    fi
    export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=$chosen
}

_hillclimb_select_gpu
