#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measure how well `tpl plan` predicts prefill and decode time on this machine, and print the table: spec/bench/README.md, "Prediction".
#
#   sh spec/bench/predict.sh [--rounds N] [--keep FILE]    measure (about five minutes a round), then the table; exit 1 when a bar is missed
#   sh spec/bench/predict.sh --show FILE                   the table again from what --keep kept
#   sh spec/bench/predict.sh --fit FILE                    fit the constants of lua/tpl/cost/cpu.lua to its calibration cases
set -eu
cd "$(dirname "$0")/../.."
[ -x build/tpl ] || { echo 'predict: build/tpl is missing: run sh spec/setup.sh' >&2; exit 1; }
rounds=5 keep='' fit='' show=''
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --keep) keep=$2 ;;
    --show) show=$2 ;;
    --fit) fit=$2 ;;
    *) echo "predict: unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
[ -z "$show" ] || exec luajit spec/bench/predict.lua show "$show"
[ -z "$fit" ] || exec luajit spec/bench/predict.lua fit "$fit"

cache=${TPL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tpl}
small=$cache/models/smollm2.gguf
even=$cache/peers/models/even-0.5b-q4_0.gguf
[ -f "$small" ] || { echo "predict: $small is missing: build/tpl pull smollm2" >&2; exit 1; }
if [ ! -f "$even" ]; then
    mkdir -p "$(dirname "$even")"
    python3 spec/bench/synthetic.py "$even.part" 1536 14 6144 24 8 32768
    mv "$even.part" "$even"
fi
file=${keep:-$(mktemp)}
# A higher priority than what else runs, where that is allowed. A session's own group of processes has one of its own on Linux.
if nice -n -5 true 2>/dev/null; then hurry='nice -n -5'; else hurry=; fi
$hurry luajit spec/bench/predict.lua measure "$rounds" "$file" "smollm2=$small" "even-0.5b=$even"
luajit spec/bench/predict.lua show "$file"
