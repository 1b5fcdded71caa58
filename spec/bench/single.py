# SPDX-License-Identifier: Apache-2.0
"""Figures without turns: accuracy, which is the same every time, and loading, where the best of a few tries counts."""
import json
import os
import statistics
import subprocess

import models
import sides

LOAD_TRIES = 7
LOAD_GB_S, LOAD_RSS = 4.0, 1.08
KL_RATIO = 1.05


def _answer(command, env=None):
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, env=env)
    if done.returncode:
        raise sides.Missing(f"{' '.join(command[:3])}: exit {done.returncode}")
    return json.loads(done.stdout)


def _row(name, bar, value, holds, **more):
    return {"row": name, "bar": bar, "median": value, "verdict": "met" if holds else "missed", **more}


def accuracy(o):
    """KL to float32 of tpl over llama.cpp's, on the same ids and the same file."""
    fixture = os.path.join(os.environ.get("TPL_SHARED") or "../shared", "fixtures/models/llama-smollm2-135m-q4_1")
    if not os.path.exists(fixture):
        raise sides.Missing(f"no fixture {fixture} (set TPL_SHARED)")
    sides.install("llamacpp")
    python, env = sides.python_of("llamacpp", o.threads)
    got = {engine: _answer([python, os.path.join(sides.HERE, "accuracy.py"), engine, models.path("q4_1"), fixture, str(o.threads)], env)
           for engine in ("tpl", "llamacpp")}
    ours, theirs = got["tpl"], got["llamacpp"]
    ratio = ours["kl"] / theirs["kl"]
    print(f"\naccuracy on q4_1, {ours['rows']} rows: KL to float32 tpl {ours['kl']:.3g}, llama.cpp {theirs['kl']:.3g}, "
          f"ratio {ratio:.3g}, bar <= {KL_RATIO}")
    print(f"  greedy steps of the reference: tpl {ours['greedy']}, llama.cpp {theirs['greedy']} of {ours['steps']}")
    return [_row("accuracy, KL ratio", KL_RATIO, ratio, ratio <= KL_RATIO, tpl=ours, llamacpp=theirs)]


def load(o):
    """Loading the 1.2 B shape from a warm page cache, each time in a new process."""
    model = models.path("even")
    tries = [_answer(["luajit", "spec/bench/load.lua", model, f"threads={o.threads}"]) for _ in range(LOAD_TRIES)]
    speeds = [t["gb_s"] for t in tries]
    rss = max(t["rss_peak_over_weights"] for t in tries)
    print(f"\nload of {tries[0]['weight_bytes'] / 1e6:.0f} MB, page cache warm: median {statistics.median(speeds):.2f} GB/s ({min(speeds):.2f} to "
          f"{max(speeds):.2f}, {LOAD_TRIES} tries), bar {LOAD_GB_S}; peak resident memory {rss:.3f} x the weights, bar {LOAD_RSS}; "
          f"read {tries[0]['read_over_shards']:.3f} x the shards")
    return [_row("load, GB/s", LOAD_GB_S, statistics.median(speeds), statistics.median(speeds) >= LOAD_GB_S, tries=speeds),
            _row("load, peak resident over weights", LOAD_RSS, rss, rss <= LOAD_RSS)]
