#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare two ways to cut one model on the same cores: decode speed of `tpl bench MODEL A..` over `tpl bench MODEL B..`.

    python3 spec/bench/cuts.py MODEL.gguf --a tp=2 --b tp=1

Pairs take turns; a probe before and after each pair says whether the machine stayed the same (spec/bench/README.md).
"""
import argparse
import json
import statistics

from compare import MAX_DRIFT, drift, probe, tpl


def speed(model, words, new):
    text = tpl("bench", model, *words, "want.context=1024", "want.concurrency=1", "--prompt", "16", "--new", str(new),
               "--runs", "1", "--json")
    return json.loads(text)["result"]["cases"][0]["decode_tok_s"]


def main():
    p = argparse.ArgumentParser(description="two cuts of one model on the same cores")
    p.add_argument("model")
    p.add_argument("--a", default="tp=2", help="key=value words, separated by blanks")
    p.add_argument("--b", default="tp=1")
    p.add_argument("--pairs", type=int, default=9)
    p.add_argument("--new", type=int, default=32)
    o = p.parse_args()
    sides = {"a": o.a.split(), "b": o.b.split()}
    ratios, dropped = [], 0
    for i in range(o.pairs):
        before = probe()
        got = {side: speed(o.model, sides[side], o.new) for side in (("a", "b") if i % 2 == 0 else ("b", "a"))}
        moved = drift(before, probe())
        print(f"  pair {i + 1}: {o.a} {got['a']:.1f}, {o.b} {got['b']:.1f} tokens/s, ratio {got['a'] / got['b']:.3f}, "
              f"{before['read_gb_s']:.1f} GB/s" + (f", dropped: probes differ by {100 * moved:.0f} %" if moved > MAX_DRIFT else ""))
        if moved > MAX_DRIFT:
            dropped += 1
        else:
            ratios.append(got["a"] / got["b"])
    if len(ratios) < 5:
        print(f"no verdict: {len(ratios)} pairs left")
        return
    print(f"{o.a} / {o.b} = {statistics.median(ratios):.2f} (range {min(ratios):.2f} to {max(ratios):.2f}, "
          f"{len(ratios)} pairs, {dropped} dropped)")


if __name__ == "__main__":
    main()
