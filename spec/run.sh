#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Build tpl and run its tests.
#
#   sh spec/run.sh [--only PATTERN] [--full | --slice NAME]
#
# The core tier: build with warnings as errors, luacheck, the C tests, the Lua specs, the C tests and the hostile files again under sanitizers.
#   --only PATTERN  only tests whose path or name matches this extended regular expression; leaves the sanitizers out unless it says asan
#   --slice NAME    one of the long slices (10 minutes each at most) instead of the core tier
#   --full          the core tier and every slice; writes spec/full_result.txt, which is committed
# Every test program is a process of its own and writes TAP, so a crash is one failure and hides no other test. Outputs are kept in
# build/test-log/. The last line is `N passed, N failed, N skipped`; the exit code is 1 when anything failed.
set -u
cd "$(dirname "$0")/.." || exit 1

slices="sweep fuzz_gguf fuzz_safetensors fuzz_json fuzz_tokenizer fuzz_template fuzz_yaml fuzz_topology policies threads aarch64" # names; each has a function slice_NAME below

only=. tier=core sanitize=yes
usage() { printf 'usage: sh spec/run.sh [--only PATTERN] [--full | --slice NAME]   slices: %s\n' "${slices:-none yet}" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --only) [ $# -ge 2 ] || usage; only=$2; shift; case $only in *asan*) ;; *) sanitize=no ;; esac ;;
    --full) tier=full ;;
    --slice) [ $# -ge 2 ] || usage; tier=$2; shift; case " $slices " in *" $tier "*) ;; *) usage ;; esac ;;
    --list-slices) printf '%s\n' "$slices"; exit 0 ;;
    *) usage ;;
  esac
  shift
done

log=build/test-log
passed=0 failed=0 skipped=0 started=$(date +%s)
now() { date +%s; }
chapter() { printf '\n== %s (%d s)\n' "$1" $(($(now) - started)); }

# Counts one TAP file. Prints the reasons of skips, and everything that is not plain success.
#   tally NAME FILE STATUS SECONDS
tally() {
  counts=$(awk '
    /^not ok / && !/# SKIP/ { bad++; next }
    /^(not )?ok .*# SKIP/ { skip++; next } # cmocka writes a skipped test as "not ok N # SKIP"
    /^ok / { good++ }
    END { printf "%d %d %d", good, bad, skip }' "$2")
  # shellcheck disable=SC2086
  set -- "$1" "$2" "$3" "$4" $counts
  bad=$6 note=
  if [ "$3" -ne 0 ] && [ "$bad" -eq 0 ]; then
    bad=1 note=", ended with status $3"
    [ "$3" -ne 124 ] || note=", stopped after $limit s"
  elif [ $(($5 + $6 + $7)) -eq 0 ]; then
    bad=1 note=", ran no test"
  fi
  printf '%-50s %4d passed, %d failed, %d skipped (%d s%s)\n' "$1" "$5" "$bad" "$7" "$4" "$note"
  sed -n 's/^\(not \)\{0,1\}ok [0-9]*.*# SKIP \(\/usr\/bin\/busted:[0-9]*: \)\{0,1\}/    skipped: /p' "$2" | sort | uniq -c | sed 's/^ *1 /  /; s/^ *\([0-9][0-9]*\) */  \1 x /'
  [ "$bad" -eq 0 ] || { printf '%s\n' "$1$note" >>$log/failed; tail -n +1 "$2" | grep -v '^ok ' | head -n 200 | sed 's/^/    /'; }
  passed=$((passed + $5)) failed=$((failed + bad)) skipped=$((skipped + $7))
}

# Runs one test program that writes TAP.
#   test_program NAME COMMAND...
limit=300
test_program() {
  name=$1
  shift
  printf '%s\n' "$name" | grep -Eq -- "$only" || return 0
  file=$log/$(printf '%s' "$name" | tr '/ ' '__').tap
  begin=$(now)
  timeout -k 5 $limit "$@" >"$file" 2>&1 </dev/null
  tally "$name" "$file" $? $(($(now) - begin))
}

# Runs something that has no TAP of its own as one test.
#   one NAME COMMAND...
one() {
  name=$1
  shift
  printf '%s\n' "$name" | grep -Eq -- "$only" || return 0
  file=$log/$(printf '%s' "$name" | tr '/ ' '__').tap
  begin=$(now)
  if "$@" >"$file.out" 2>&1 </dev/null; then echo "ok 1 - $name" >"$file"
  else { echo "not ok 1 - $name"; sed 's/^/# /' "$file.out"; } >"$file"
  fi
  tally "$name" "$file" 0 $(($(now) - begin))
}

# An installed copy must find its Lua files and its core away from the source tree.
installed() {
  root=$PWD/build/installed
  rm -rf "$root"
  cmake --install build --prefix "$root" >/dev/null &&
    (cd / && "$root/bin/tpl" version && eval "$("$root/bin/tpl" env)" && luajit -e 'assert(require("tpl").plan)') &&
    (cd / && "$root/bin/tpl" plan "$OLDPWD/spec/fixtures/models/bf16" tp=2 "layout=megatron")
}

# The whole engine once under the sanitizers; LeakSanitizer does not see what LuaJIT's own memory still holds.
sanitized_engine() {
  row='{"id":"a","ids":[5,6,7,8,9],"max_tokens":4,"ignore_eos":true}'
  for words in tp=2 "tp=3 pp=2" "tp=2 layout=megatron_sp" act=auto; do
    # shellcheck disable=SC2086
    printf '%s\n' "$row" | ASAN_OPTIONS=detect_leaks=0 build-asan/tpl generate spec/fixtures/models/bf16 act=f32 $words --in - || return 1
  done
  printf '%s\n' "$row" | ASAN_OPTIONS=detect_leaks=0 build-asan/tpl generate spec/fixtures/models/gguf-q4_1/model.gguf tp=2 --in - || return 1
  printf '%s\n' "$row" | ASAN_OPTIONS=detect_leaks=0 build-asan/tpl score spec/fixtures/models/gguf-q8_0/model.gguf --in -
}

c_tests() { # BUILD-FOLDER LABEL
  for source in spec/c/*_test.c; do
    test=$(basename "$source" .c)
    test_program "$2 $test" env CMOCKA_MESSAGE_OUTPUT=TAP "$1/spec/c/$test"
  done
}

lua_specs() { # FOLDER...
  find "$@" -name '*_spec.lua' | sort >$log/specs
  while read -r spec; do
    test_program "$spec" busted -o TAP "$spec"
  done <$log/specs
}

build_sanitized() { # TARGET...
  cmake -S . -B build-asan -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1 -DTPL_SANITIZE=address,undefined -DTPL_TESTS=ON &&
    ninja -C build-asan --quiet "$@"
}

sanitized() {
  one "asan build" build_sanitized spec/c/all tpl sweep
  export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1
  c_tests build-asan asan
  test_program "asan sweep (600 damaged files)" build-asan/spec/fuzz/sweep 600
  test_program "asan spec/hostile/tap.lua" env ASAN_OPTIONS=detect_leaks=0 build-asan/tpl lua spec/hostile/tap.lua
  one "asan engine" sanitized_engine
  unset ASAN_OPTIONS UBSAN_OPTIONS
}

# -- Slices: each at most 10 minutes of two cores, with what it builds ----

slice_sweep() {
  limit=540
  one "asan build of the sweep" build_sanitized sweep
  test_program "asan sweep (20000 damaged files)" env ASAN_OPTIONS=detect_leaks=1 build-asan/spec/fuzz/sweep 20000
}

# Two processes for five minutes: ten minutes of processor time, and room for the build.
fuzz() { # TARGET
  one "packages for fuzz programs" sh spec/setup.sh --fuzz --no-build
  one "fuzz $1 (2 x 300 s)" timeout 590 sh spec/fuzz/run.sh "$1" 300
  grep -h '^  ' "$log/fuzz_$1_(2_x_300_s).tap.out" # how many inputs
}
slice_fuzz_gguf() { fuzz gguf; }
slice_fuzz_safetensors() { fuzz safetensors; }
slice_fuzz_json() { fuzz json; }
slice_fuzz_tokenizer() { fuzz tokenizer; }
slice_fuzz_template() { fuzz template; }
slice_fuzz_yaml() { fuzz yaml; }
slice_fuzz_topology() { fuzz topology; }

# Every placement policy on imagined machines.
slice_policies() {
  limit=560
  for policy in policies/*.lua; do
    one "test-policy $policy (150 machines)" build/tpl test-policy "$policy" --random 150 --seed 11 --out "$log/policies"
  done
}

build_threads() {
  cmake -S . -B build-tsan -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-O1 -DTPL_SANITIZE=thread -DTPL_TESTS=ON &&
    ninja -C build-tsan --quiet comm_test team_test sched_test pages_test program_test tpl
}

# The engine's threads under the thread sanitizer; a report of a race makes the exit code 66.
engine_threads() {
  row='{"id":"a","ids":[5,6,7,8,9],"max_tokens":6,"ignore_eos":true}'
  for words in tp=2 "tp=3 pp=2 layout=megatron_sp" "tp=2 threads=2"; do
    # shellcheck disable=SC2086
    printf '%s\n%s\n' "$row" "$row" | build-tsan/tpl generate spec/fixtures/models/bf16 act=f32 $words --in - || return 1
  done
}

slice_threads() {
  limit=200
  one "tsan build" build_threads
  for test in comm_test team_test sched_test pages_test program_test; do
    test_program "tsan $test" env CMOCKA_MESSAGE_OUTPUT=TAP build-tsan/spec/c/$test
  done
  one "tsan engine" engine_threads
}

build_aarch64() {
  sh spec/setup.sh --aarch64 --no-build &&
    cmake -S . -B build-aarch64 -G Ninja -DCMAKE_TOOLCHAIN_FILE=spec/aarch64/toolchain.cmake -DTPL_WERROR=ON -DTPL_TESTS=ON &&
    ninja -C build-aarch64 --quiet
}

# Everything cross built for aarch64 and run in an emulator: on a processor that has all extensions, and what depends on them again on one
# that has none. The portable instruction set must give the same bits of logits here and there.
slice_aarch64() {
  one "aarch64 build" build_aarch64
  arm="qemu-aarch64-static -L build-aarch64/sysroot -cpu"
  # shellcheck disable=SC2086 # a list of words
  for source in spec/c/*_test.c; do
    test=$(basename "$source" .c)
    test_program "aarch64 $test" env CMOCKA_MESSAGE_OUTPUT=TAP $arm max build-aarch64/spec/c/$test
  done
  engine="lua spec/aarch64/engine.lua $log/bits"
  # shellcheck disable=SC2086
  {
    test_program "aarch64 without dotprod kernels_matrix_test" env CMOCKA_MESSAGE_OUTPUT=TAP $arm cortex-a53 build-aarch64/spec/c/kernels_matrix_test
    test_program "aarch64 without dotprod engine" $arm cortex-a53 build-aarch64/tpl $engine.a53 own
    test_program "aarch64 engine" $arm max build-aarch64/tpl $engine.neon
    test_program "aarch64 portable engine" env TPL_ISA=portable $arm max build-aarch64/tpl $engine.there
    test_program "aarch64 portable engine, natively" env TPL_ISA=portable build/tpl $engine.here
  }
  one "aarch64 portable bits" cmp $log/bits.here $log/bits.there
}

# -- The end ----

# What the run did so far, as a line of the full result: the counts since the line before.
seen_passed=0 seen_failed=0 seen_skipped=0 seen_time=$started
note_result() { # NAME
  printf '%-24s %5d passed, %d failed, %d skipped, %d s\n' "$1" $((passed - seen_passed)) $((failed - seen_failed)) $((skipped - seen_skipped)) \
    $(($(now) - seen_time)) >>$log/results
  seen_passed=$passed seen_failed=$failed seen_skipped=$skipped seen_time=$(now)
}

write_full_result() {
  dirty=$(git status --porcelain -- . ':!spec/full_result.txt' 2>/dev/null | wc -l)
  {
    echo "The last run of sh spec/run.sh --full, as it wrote it."
    echo
    echo "date     $(date -u +%Y-%m-%d)"
    echo "commit   $(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)$([ "$dirty" -eq 0 ] || echo " and $dirty changed files")"
    echo "machine  $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(awk '/MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo) GiB"
    echo "system   $(. /etc/os-release 2>/dev/null && echo "$PRETTY_NAME"), Linux $(uname -r)"
    echo
    cat $log/results
    printf '%-24s %5d passed, %d failed, %d skipped, %d s\n' total $passed $failed $skipped $(($(now) - started))
    [ ! -s $log/failed ] || { echo; echo "failed:"; sed 's/^/  /' $log/failed; }
  } >spec/full_result.txt
}

finish() {
  [ $tier != full ] || write_full_result
  printf '\n'
  [ ! -s $log/failed ] || { echo "failed:"; sed 's/^/  /' $log/failed; }
  printf 'time: %d s\n%d passed, %d failed, %d skipped\n' $(($(now) - started)) $passed $failed $skipped
  [ $failed -eq 0 ]
  exit
}

mkdir -p $log
rm -f $log/* 2>/dev/null
: >$log/failed

chapter "set up and build"
if ! sh spec/setup.sh --tests; then
  echo "set up and build" >>$log/failed
  failed=1
  finish
fi
# What needs the real model says so and skips when it cannot be had.
sh examples/fetch_smollm2.sh >/dev/null || echo "the quickstart model could not be fetched: the tests that need it will skip"

if [ "$tier" = core ] || [ "$tier" = full ]; then
  chapter "luacheck, install"
  one luacheck luacheck --quiet --no-color .
  one install installed
  chapter "C tests"
  c_tests build c
  chapter "Lua specs"
  lua_specs spec
  if [ $sanitize = yes ]; then
    chapter "C tests under sanitizers"
    sanitized
  fi
fi
case $tier in
  core) ;;
  full)
    note_result core
    for slice in $slices; do
      chapter "slice $slice"
      limit=300
      "slice_$slice"
      note_result "slice $slice"
    done
    ;;
  *) chapter "slice $tier"; "slice_$tier" ;;
esac
finish
