# SPDX-License-Identifier: Apache-2.0
"""One peer in a process of its own: `python host.py NAME MODEL THREADS CONTEXT` in the Python that has the peer's package.

A peer is a file of this folder with a class Engine:

    Engine(model, threads, context)     loads; .version and .isa are texts
    engine.time(ids, new)               runs the prompt `ids`, then greedy or forced decoding of `new` tokens in all, from an empty cache;
                                        gives the seconds to the first token, and from the first token to the last

The host prints {"version", "isa"} when the model is loaded and warm, then answers lines {"prompt", "new", "runs", "seed"} with the median
speeds {"prefill", "decode"} in tokens/s. It sleeps in between: a warm peer costs its rival nothing but memory.
"""
import importlib
import json
import os
import statistics
import sys


def random_ids(seed, n):
    """Ids from 1000 to 40999: plain words in the vocabularies measured here."""
    out = []
    for _ in range(n):
        seed = seed * 48271 % 2147483647
        out.append(1000 + seed % 40000)
    return out


def answer(engine, ask):
    times = [engine.time(random_ids(ask["seed"] + run, ask["prompt"]), ask["new"]) for run in range(ask["runs"])]
    decode = statistics.median(t for _, t in times)
    return {"prefill": ask["prompt"] / statistics.median(t for t, _ in times),
            "decode": (ask["new"] - 1) / decode if ask["new"] > 1 else None}


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the peer prints is not an answer
    name, model, threads, context = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    engine = importlib.import_module(name).Engine(model, threads, context)
    for _ in range(2):
        engine.time(random_ids(7, 512), 1)
        engine.time(random_ids(7, 16), 32)
    print(json.dumps({"version": engine.version, "isa": engine.isa}), file=out, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line))), file=out, flush=True)


if __name__ == "__main__":
    main()
