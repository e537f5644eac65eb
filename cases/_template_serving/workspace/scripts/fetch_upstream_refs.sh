#!/usr/bin/env bash
# Fetches public repositories to read, each at the commit that docs/upstream_examples.md describes.
#   fetch_upstream_refs.sh [--pack NAME] [--into FOLDER] [--list] [--help]
# Nothing is built or run. A person calls it: while candidates are judged there is no network.
#   HILLCLIMB_UPSTREAM   where OWNER/NAME.git lie, in place of https://github.com; file:///FOLDER works as well
set -euo pipefail

upstream=${HILLCLIMB_UPSTREAM:-https://github.com}
upstream=${upstream%/}
export GIT_TERMINAL_PROMPT=0 GIT_LFS_SKIP_SMUDGE=1 GIT_HTTP_LOW_SPEED_LIMIT=1000 GIT_HTTP_LOW_SPEED_TIME=30

# pack, repository, commit, licence
pins() {
    cat <<'END'
tri-dao     Dao-AILab/flash-attention  0251105a2fb19d2957484b7f023cd8c115286ced  BSD-3-Clause
tri-dao     state-spaces/mamba         e9594ce1c732d97440f0332fdc43170a2294dbfa  Apache-2.0
tri-dao     Dao-AILab/quack            c8ec3170057987da0ec99883736f381ea1937cf3  Apache-2.0
tri-dao     Dao-AILab/sonic-moe        8565e849c08082e12dbeb7a9de035108a60fe1b2  Apache-2.0
nvidia      NVIDIA/cutlass             7107b05535f8977f5ecb9d01ee203205b1fd9bc4  BSD-3-Clause
triton      triton-lang/triton         a7e3476e86757780c2528d1100eb7aabe58d8c19  MIT
triton      linkedin/Liger-Kernel      ead96b618e5c67bddc6a6e9bcb99bfe6b5ab661c  BSD-2-Clause
megakernel  HazyResearch/Megakernels   7309cec801537b61fea3b50d7dfe454a6cde578e  MIT
END
}

packs() { pins | awk '!seen[$1]++ { printf "%s%s", (NR > 1 ? ", " : ""), $1 }'; }

usage() {
    cat <<END
usage: fetch_upstream_refs.sh [--pack NAME] [--into FOLDER] [--list] [--help]

  --pack NAME     which repositories: $(packs) (default: tri-dao)
  --into FOLDER   where they go, a folder each (default: \$XDG_CACHE_HOME/hillclimb/upstream, else below ~/.cache)
  --list          print packs, repositories, commits and licences, and fetch nothing

Exit status: 0 all are there, 2 wrong usage, 3 one could not be fetched.
END
}

# Two lines: what is wrong, and what to do.
fail() {
    echo "fetch_upstream_refs: $2" >&2
    echo "                     $3" >&2
    exit "$1"
}

# The work tree that a folder lies in, or would lie in; nothing where there is none.
work_tree() {
    local folder=$1
    while true; do
        [ ! -e "$folder/.git" ] || { echo "$folder" && return; }
        [ "$folder" != / ] || return 0
        folder=$(dirname "$folder")
    done
}

# The outermost folder that making this one would make; nothing where it is there.
missing_folder() {
    local folder=$1 missing=
    while [ ! -e "$folder" ]; do
        missing=$folder
        folder=$(dirname "$folder")
    done
    echo "$missing"
}

refuse_work_tree() {
    local tree
    tree=$(work_tree "$1")
    [ -n "$tree" ] || return 0
    git -C "$tree" check-ignore --quiet -- "$1/any" ||
        fail 2 "$1 lies in the git work tree $tree, which does not ignore it" \
            "choose a folder outside of it with --into, or have git ignore this one"
}

scratch=
clean_up() { [ -z "$scratch" ] || rm -rf -- "$scratch"; }
trap clean_up EXIT

# One repository into "$scratch/$name". What git says goes to "$scratch/log".
fetch_commit() {
    local folder=$1 address=$2 commit=$3
    {
        git init --quiet --template= "$folder" &&
            git -C "$folder" fetch --quiet --depth 1 "$address" "$commit" &&
            [ "$(git -C "$folder" rev-parse FETCH_HEAD)" = "$commit" ] &&
            git -C "$folder" -c advice.detachedHead=false checkout --quiet --detach "$commit"
    } >"$scratch/log" 2>&1
}

# What git said it died of, else its last line.
reason() {
    { grep -a -m 1 '^fatal: ' "$scratch/log" || tail -n 1 "$scratch/log"; } | tr -d '\000-\037'
}

# Says one line. Fails where the repository is not there at that commit in the end.
bring() {
    local repository=$1 commit=$2 name=${1#*/} address=$upstream/$1.git target found
    target=$into/$name
    if [ -e "$target" ] || [ -L "$target" ]; then
        found=$(git --git-dir="$target/.git" rev-parse --quiet --verify HEAD 2>/dev/null || true)
        if [ "$found" = "$commit" ]; then
            echo "$name: already at $commit in $target"
            return
        fi
        echo "$name: $target is there with ${found:-something else} in place of $commit;" \
            "move it away, then run this again" >&2
        return 1
    fi
    if ! scratch=$(mktemp -d "$into/.$name.XXXXXX" 2>/dev/null); then
        scratch=
        echo "$name: nothing can be written into $into; choose another folder with --into" >&2
        return 1
    fi
    if fetch_commit "$scratch/$name" "$address" "$commit" && mv -T -- "$scratch/$name" "$target" 2>>"$scratch/log"; then
        echo "$name: fetched $commit into $target"
        clean_up
        return
    fi
    echo "$name: not fetched from $address ($(reason)); run this again with a network," \
        "or name a mirror that has $repository.git in HILLCLIMB_UPSTREAM" >&2
    clean_up
    return 1
}

pack=tri-dao
into=
while [ $# -gt 0 ]; do
    case $1 in
        --pack | --into)
            [ -n "${2:-}" ] || fail 2 "$1 needs a value" "see fetch_upstream_refs.sh --help"
            if [ "$1" = --pack ]; then pack=$2; else into=$2; fi
            shift 2
            ;;
        --list) pins && exit ;;
        -h | --help) usage && exit ;;
        *) fail 2 "$1 is no option" "see fetch_upstream_refs.sh --help" ;;
    esac
done
pins | awk -v pack="$pack" '$1 == pack { found = 1 } END { exit !found }' ||
    fail 2 "there is no pack $pack" "choose one of: $(packs)"
command -v git >/dev/null || fail 3 "git is missing" "install git, then run this again"
# shellcheck disable=SC2046 # a list of names
unset $(git rev-parse --local-env-vars)
if [ -z "$into" ]; then
    caches=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
    [ -n "$caches" ] || fail 2 "neither XDG_CACHE_HOME nor HOME is set" "name a folder with --into"
    into=$caches/hillclimb/upstream
fi
into=$(realpath -m -- "$into")
refuse_work_tree "$into"
made=$(missing_folder "$into")
mkdir -p -- "$into" 2>/dev/null ||
    fail 3 "the folder $into could not be made" "choose another one with --into"

missing=0
while read -r of repository commit _; do
    [ "$of" = "$pack" ] || continue
    bring "$repository" "$commit" </dev/null || missing=$((missing + 1))
done < <(pins)
if [ "$missing" -gt 0 ]; then
    [ -z "$made" ] || find "$made" -depth -type d -empty -delete
    exit 3
fi
