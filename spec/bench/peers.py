# SPDX-License-Identifier: Apache-2.0
"""All figures that tpl promises beside others, in one run: see spec/bench/README.md. Called by spec/bench/peers.sh."""
import argparse
import json
import os
import sys

import contest
import cuts
import noisy_neighbour
import pairs
import sides
import single

ROWS = {  # in the order of the issue; a contest takes title, peer, tpl's file, the peer's file, and bars (0: shown without a bar)
    "accuracy": single.accuracy,
    "q4_1": lambda o: contest.run(o, "llama.cpp Q4_1", "llamacpp", "q4_1", "q4_1", prefill=4, decode=1.5),
    "bf16": lambda o: contest.run(o, "llama.cpp BF16", "llamacpp", "bf16", "bf16", prefill=1.5, decode=1.15),
    "q8_0": lambda o: contest.run(o, "llama.cpp Q8_0", "llamacpp", "q8_0", "q8_0", prefill=1.5, decode=1.15),
    "q4_0": lambda o: contest.run(o, "llama.cpp Q4_0", "llamacpp", "q4_0", "q4_0", prefill=1.5, decode=1.15),
    "depth": lambda o: contest.run(o, "llama.cpp Q4_1", "llamacpp", "q4_1", "q4_1", deep=1.7),
    "vllm": lambda o: contest.run(o, "vLLM-CPU BF16", "vllmcpu", "bf16", "hf", prefill=1, decode=1.2),
    "openvino": lambda o: contest.run(o, "OpenVINO int8", "openvinogenai", "q8_0", "openvino", prefill=1, decode=0),
    "cut-even": lambda o: cuts.run(o, "TP=2, even 1.2 B", "even", 0.95),
    "cut-uneven": lambda o: cuts.run(o, "TP=2, quickstart model", "q4_1", 0.95),
    "load": single.load,
    "noisy": noisy_neighbour.run,
}


def number(x):
    return "" if x is None else f"{x:.3g}"


def table(rows):
    print(f"\n{'row':<38}{'figure':>9}{'range':>18}{'pairs':>8}{'bar':>7}  verdict")
    for r in rows:
        spread = f"{number(r['min'])} to {number(r['max'])}" if r.get("min") is not None else ""
        count = f"{r['kept']}/{r['pairs']}" if "pairs" in r else ""
        print(f"{r['row']:<38}{number(r.get('median')):>9}{spread:>18}{count:>8}{number(r['bar']):>7}  {r['verdict']}")


def options():
    p = argparse.ArgumentParser(prog="peers.sh", description="tpl beside llama.cpp, vLLM-CPU and OpenVINO on the same cores")
    p.add_argument("--only", default=",".join(ROWS), help="rows, separated by commas: " + ", ".join(ROWS))
    p.add_argument("--pairs", type=int, default=9, help=f"interleaved pairs for each figure; fewer than {pairs.MIN_PAIRS} give no verdict")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="cores that every engine gets")
    p.add_argument("--json", help="also write the rows to this file")
    o = p.parse_args()
    o.only = o.only.split(",")
    for name in o.only:
        if name not in ROWS:
            p.error(f"no row {name}")
    return o


def main():
    o = options()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:o.threads])  # inherited by all that is started here
    machine, rows = pairs.probe(), []
    print(f"{machine['cpu']}, {o.threads} cores, isa {machine['isa']}; probed {machine['read_gb_s']:.1f} GB/s, {machine['matrix_gflop_s']:.0f} "
          f"GFLOP/s ({machine['matrix_kind']})")
    for name in o.only:
        try:
            rows += ROWS[name](o)
        except sides.Missing as e:
            print(f"\n{name}: missing: {e}")
            rows.append({"row": name, "bar": None, "verdict": f"missing: {e}"})
        sys.stdout.flush()
        if o.json:  # after every row: a run that is broken off keeps what it has
            with open(o.json, "w") as f:
                json.dump({"machine": machine, "threads": o.threads, "rows": rows}, f, indent=1)
    table(rows)


if __name__ == "__main__":
    main()
