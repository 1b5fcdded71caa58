# SPDX-License-Identifier: Apache-2.0
"""The method of design/engine.md section 11: two sides take turns, the machine is probed in between, and only quiet pairs count.

A side has a name, an isa, and speed(prompt, new, runs, seed), which gives {"prefill", "decode"} in tokens/s.
"""
import json
import statistics
import subprocess

from sides import say

MAX_DRIFT, MIN_PAIRS, MIN_KEPT = 0.10, 7, 5


def probe():
    """Read bandwidth and a matrix peak of the machine now, by `tpl bench probe`."""
    text = subprocess.run(["build/tpl", "bench", "probe", "--json"], check=True, stdout=subprocess.PIPE).stdout
    machine = json.loads(text)["result"]["machine"]
    peaks = {kind: peak for kind, peak in machine["matrix_gflop_s"].items() if peak}
    # what prompts are multiplied in: bf16 where the CPU does that faster than floats, else whatever it does fastest
    kind = "bf16" if peaks.get("bf16", 0) > peaks["f32"] else max(peaks, key=peaks.get)
    return {"read_gb_s": machine["read_gb_s"], "matrix_gflop_s": peaks[kind], "matrix_kind": kind, "cpu": machine["cpu"], "isa": machine["isa"]}


def drift(before, after):
    return max(abs(before[k] - after[k]) / max(before[k], after[k]) for k in ("read_gb_s", "matrix_gflop_s"))


def interleave(sides, n, measure):
    """Run measure(side, i) of both sides in n pairs, the first side first in every other one.

    Gives pairs {"got": [of sides[0], of sides[1]], "probe", "drift"}; a pair is kept when its drift is at most MAX_DRIFT.
    """
    pairs, before = [], probe()
    for i in range(n):
        order = (0, 1) if i % 2 == 0 else (1, 0)
        got = [None, None]
        for s in order:
            got[s] = measure(sides[s], i)
        after = probe()
        pairs.append({"got": got, "probe": before, "drift": drift(before, after)})
        say(f"  pair {i + 1}: " + ", ".join(f"{side.name} {shown(x)}" for side, x in zip(sides, got)) +
            f"; {after['read_gb_s']:.1f} GB/s, {after['matrix_gflop_s']:.0f} GFLOP/s" +
            (f"; dropped, the probes differ by {100 * pairs[-1]['drift']:.0f} %" if pairs[-1]["drift"] > MAX_DRIFT else ""))
        before = after
    return pairs


def shown(x):
    return " ".join(f"{k} {v:.4g}" for k, v in x.items() if v is not None) if isinstance(x, dict) else f"{x:.4g}"


def kept(pairs):
    return [p for p in pairs if p["drift"] <= MAX_DRIFT]


def judge(row, bar, pairs, ratio):
    """A row of the result: median and range of ratio(pair["got"]) over the kept pairs against a bar (None: shown, not judged)."""
    ratios = [ratio(p["got"]) for p in kept(pairs)]
    enough = len(pairs) >= MIN_PAIRS and len(ratios) >= MIN_KEPT
    median = statistics.median(ratios) if ratios else None
    verdict = "no verdict" if not enough else "shown" if bar is None else "met" if median >= bar else "missed"
    return {"row": row, "bar": bar, "median": median, "min": min(ratios, default=None), "max": max(ratios, default=None),
            "pairs": len(pairs), "kept": len(ratios), "ratios": ratios, "verdict": verdict}


def middle(pairs, value):
    """Median of value(pair) over the kept pairs; of all pairs when none was kept, so that a busy machine shows something."""
    return statistics.median(value(p) for p in kept(pairs) or pairs)


def figure(row):
    """The ratio of a row in one line: median (range; pairs) against its bar."""
    if row["median"] is None:
        return f"no pair of {row['pairs']} kept"
    bar = f", bar {row['bar']}" if row["bar"] else ""
    return f"{row['median']:.3g} ({row['min']:.3g} to {row['max']:.3g}, {row['kept']} of {row['pairs']} pairs){bar}: {row['verdict']}"
