#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run one fuzz program under the address and undefined-behaviour sanitizers.
#
#   sh spec/fuzz/run.sh TARGET [SECONDS] [--keep]
#
# TARGET   gguf, safetensors, json, tokenizer, template, yaml or topology
# SECONDS  wall time (300); two processes share a corpus, so that is twice the processor time
# --keep   afterwards the committed corpus, spec/fuzz/corpus/TARGET, becomes the smallest set of the inputs found that covers as much,
#          without those of more than KEEP_LEN bytes and, beyond KEEP_BYTES in all, without the largest
# Needs clang (sh spec/setup.sh --fuzz). A finding ends the run, and is left in build-fuzz/found/TARGET/ as libFuzzer names it.
set -eu
cd "$(dirname "$0")/../.."
target=${1:?TARGET} seconds=300 keep=no
shift
for word in "$@"; do
  case $word in
    --keep) keep=yes ;;
    *) seconds=$word ;;
  esac
done
KEEP_LEN=2048 KEEP_BYTES=120000

log=build-fuzz/configure.log
mkdir -p build-fuzz
cmake -S . -B build-fuzz -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER=clang "-DCMAKE_C_FLAGS=-O1 -fsanitize=fuzzer-no-link" \
  -DTPL_SANITIZE=address,undefined -DTPL_TESTS=OFF -DTPL_FUZZ=ON -DTPL_WERROR=ON >$log 2>&1 || { cat $log; exit 1; }
ninja -C build-fuzz --quiet "fuzz_$target"

root=$PWD
committed=$root/spec/fuzz/corpus/$target seeds=$root/spec/fuzz/seeds/$target found=$root/build-fuzz/found/$target work=$root/build-fuzz/corpus/$target
rm -rf "$found"
mkdir -p "$found" "$work" "$committed"
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
# An input may take 10 s of processor time (fuzzer.c; 200 s is for what hangs), 1 GiB in all and 160 MiB at once; the tighter bounds on a
# file are checked by the sweep.
limits="-timeout=200 -rss_limit_mb=1024 -malloc_limit_mb=160 -max_len=8192"
program=$root/build-fuzz/spec/fuzz/fuzz_$target

cd "$found"
status=0
# shellcheck disable=SC2086
"$program" $limits -max_total_time="$seconds" -jobs=2 -workers=2 -reload=1 -print_final_stats=1 -verbosity=1 \
  "$work" "$committed" "$seeds" >run.log 2>&1 || status=$?
cat fuzz-*.log | awk '/stat::number_of_executed_units/ { n += $2 } /DONE/ { print "  " $0 } END { printf "  %d inputs\n", n }'
if [ $status -ne 0 ] || ls crash-* oom-* timeout-* leak-* >/dev/null 2>&1; then
  grep -h -E -A12 'broken|ERROR|runtime error|SUMMARY' fuzz-*.log | head -n 60
  echo "found: $(ls -d "$found"/*-* | grep -v '/fuzz-' || true)"
  exit 1
fi

[ $keep = yes ] || exit 0
small=$root/build-fuzz/corpus/$target.small
rm -rf "$small"
mkdir -p "$small"
# shellcheck disable=SC2086
"$program" $limits -max_len=$KEEP_LEN -merge=1 "$small" "$committed" "$work" "$seeds" >merge.log 2>&1 || { tail -n 20 merge.log; exit 1; }
rm -f "$committed"/*
# smallest first, until it is enough
find "$small" -type f -printf '%s %f\n' | sort -n | awk -v most=$KEEP_BYTES '{ sum += $1; if (sum <= most) print $2 }' | while read -r name; do
  cp "$small/$name" "$committed/$name"
done
echo "  kept $(find "$committed" -type f | wc -l) inputs, $(du -cb "$committed"/* | tail -n 1 | cut -f 1) bytes"
