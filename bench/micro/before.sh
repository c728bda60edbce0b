#!/bin/sh
# Builds bench/micro of another commit, with this tree's cases of the index and
# of choices, for BEFORE=: bench/micro/before.sh COMMIT DIR, which prints the
# program's name.
#
# Zones had 64 peers before there was max_peers, and nobody said how many: what
# is said here is left out there.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
commit=${1:?commit}
dir=${2:?directory}

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

git -C "$root" archive "$commit" | tar x -C "$dir"

index=$(find "$dir" -path '*/core/index/kvr_index.h')
grep -q 'uint32_t max_peers' "$index" && few= || few='
#include "core/index/kvr_index.h"

#define KVR_PEERS_FEW  KVR_PEERS
#define kvr_index_lines(bytes, peers)  kvr_index_lines(bytes)
#define kvr_index_size(lines, peers)   kvr_index_size(lines)
#define kvr_index_init(ix, lines, peers)                                      \
    kvr_index_init(ix, ((void) (peers), lines))'

for cases in micro_index.c micro_pick.c; do
    { printf '%s\n' "$few"; cat "$root/bench/micro/$cases"; } \
        > "$dir/bench/micro/$cases"
done

make -s -C "$dir" build/bench/micro/micro >&2

echo "$dir/build/bench/micro/micro"
