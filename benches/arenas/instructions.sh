#!/bin/sh
# Counts instructions per allocation with callgrind: two runs of different length, the difference divided by the
# difference in length, so that start-up and the arena's making do not count. The loop and the write of the value do,
# and are the same for all.
# usage: benches/arenas/instructions.sh [peer...]
set -eu
cd "$(dirname "$0")/../.."
cargo build --release -q -p bench-arenas
bin=${CARGO_TARGET_DIR:-target}/release/bench-arenas
peers=${*:-zk-nalloc bumpalo bump-scope blink-alloc}

count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$bin" instructions "$1" "$2" "$3" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}

printf '%-12s' bytes
for peer in $peers; do printf '%14s' "$peer"; done
echo
for size in 8 16 24 32 48 64 128 256 words1 words16; do
    printf '%-12s' "$size"
    for peer in $peers; do
        few=$(count "$peer" "$size" 10000)
        many=$(count "$peer" "$size" 110000)
        echo "$few $many" | awk '{ printf "%14.2f", ($2 - $1) / 100000 }'
    done
    echo
done
