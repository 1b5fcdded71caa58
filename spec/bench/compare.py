#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares build/tpl with llama.cpp: decode and prefill speed by interleaved pairs, and greedy agreement with a stored reference.

    PYTHONPATH=<llama-cpp-python> python3 spec/bench/compare.py MODEL.gguf [options]     (spec/bench/llama_cpp.sh sets the path)

How a figure is made (design/engine.md section 11): tpl and the peer take turns, in processes of their own, on the same cores with the
same number of threads; before and after each pair the machine is probed, and a pair whose probes differ by more than 10 % is
dropped. With fewer than 5 pairs left there is no verdict. Printed are the median and the range of the ratios tpl / peer, and the
share of the probed limit that each reached.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

MAX_DRIFT, MIN_PAIRS = 0.10, 5


# -- The peer, in a process of its own ----------------------------------------------------------------------------------

class Peer:
    """llama.cpp through its C interface: one context, no sampler."""

    def __init__(self, path, threads, n_ctx):
        import llama_cpp
        self.lib = lib = llama_cpp.llama_cpp
        self.version = llama_cpp.__version__
        self.silent = lib.llama_log_callback(lambda level, text, data: None)
        lib.llama_log_set(self.silent, ctypes.c_void_p(0))
        lib.llama_backend_init()
        self.model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not self.model:
            sys.exit("llama.cpp cannot load " + path)
        p = lib.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch, p.n_outputs_max = n_ctx, 2048, 512, threads, threads, 2048
        self.context = lib.llama_init_from_model(self.model, p)
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.batch = lib.llama_batch_init(2048, 0, 1)

    def clear(self):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def decode(self, ids, first, all_rows=False):
        b = self.batch
        b.n_tokens = len(ids)
        for i, token in enumerate(ids):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0] = token, first + i, 1, 0
            b.logits[i] = all_rows or i == len(ids) - 1
        if self.lib.llama_decode(self.context, b):
            sys.exit("llama_decode failed")
        self.lib.llama_synchronize(self.context)

    def best(self, row):
        logits = ctypes.cast(self.lib.llama_get_logits_ith(self.context, row), ctypes.POINTER(ctypes.c_float * self.vocab))[0]
        return max(range(self.vocab), key=logits.__getitem__)

    def isa(self):
        text = self.lib.llama_print_system_info().decode()
        return " ".join(w.split(" = ")[0].strip() for w in text.split("|") if w.strip().endswith("= 1"))


def random_ids(seed, n, vocab):
    out = []
    for _ in range(n):
        seed = seed * 48271 % 2147483647
        out.append(3 + seed % (vocab - 4))
    return out


def peer_speed(o):
    peer = Peer(o.model, o.threads, o.prompt + o.new + 16)
    ids = random_ids(o.seed, o.prompt + o.new, peer.vocab)
    peer.decode(ids[:8], 0) # touches every page of the weights, as `tpl bench` does
    peer.clear()
    t0 = time.perf_counter()
    peer.decode(ids[:o.prompt], 0)
    t1 = time.perf_counter()
    for i in range(o.new - 1): # the first new token comes out of the prompt
        peer.decode(ids[o.prompt + i:o.prompt + i + 1], o.prompt + i)
    t2 = time.perf_counter()
    print(json.dumps({"prefill_tok_s": o.prompt / (t1 - t0), "decode_tok_s": (o.new - 1) / (t2 - t1), "isa": peer.isa(), "version": peer.version}))


def peer_agreement(o):
    expected, counts = json.load(open(os.path.join(o.reference, "expected.json"))), []
    peer = Peer(o.model, o.threads, 2048)
    for prompt in expected["prompts"]:
        ids, n = prompt["ids"] + prompt["greedy"][:-1], len(prompt["ids"])
        peer.clear()
        if n > 1:
            peer.decode(ids[:n - 1], 0)
        peer.decode(ids[n - 1:], n - 1, all_rows=True)
        counts.append(sum(peer.best(k) == want for k, want in enumerate(prompt["greedy"])))
    print(json.dumps({"counts": counts}))


def in_child(o, what, prompt=0, new=0, seed=1):
    command = [sys.executable, os.path.abspath(__file__), o.model, "--peer", what, "--threads", str(o.threads),
               "--prompt", str(prompt), "--new", str(new), "--seed", str(seed), "--reference", o.reference]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


# -- tpl ----------------------------------------------------------------------------------------------------------------

def tpl(*words, stdin=None):
    done = subprocess.run(["build/tpl", *words], stdout=subprocess.PIPE, input=stdin, text=True)
    if done.returncode:
        sys.exit(f"build/tpl {' '.join(words)}: exit {done.returncode}")
    return done.stdout


def tpl_speed(o, prompt, new):
    text = tpl("bench", o.model, f"threads={o.threads}", f"act={o.act}", f"want.context={prompt + new + 16}", "want.concurrency=1",
               "--prompt", str(prompt), "--new", str(new), "--runs", "1", "--json")
    return json.loads(text)["result"]["cases"][0]


def tpl_agreement(o):
    expected, rows = json.load(open(os.path.join(o.reference, "expected.json"))), []
    for i, prompt in enumerate(expected["prompts"]):
        rows.append(json.dumps({"id": str(i), "ids": prompt["ids"] + prompt["greedy"]}))
    out = tpl("score", o.model, f"threads={o.threads}", f"act={o.act}", "want.context=1024", "--in", "-", stdin="\n".join(rows) + "\n")
    return [sum(json.loads(line)["greedy"][len(p["ids"]):]) for line, p in zip(out.splitlines(), expected["prompts"])]


def probe():
    machine = json.loads(tpl("bench", "probe", "--json"))["result"]["machine"]
    peaks = [x for x in machine["matrix_gflop_s"].values() if x]
    return {"read_gb_s": machine["read_gb_s"], "matrix_gflop_s": max(peaks), "cpu": machine["cpu"], "isa": machine["isa"]}


# -- Pairs --------------------------------------------------------------------------------------------------------------

def drift(before, after):
    return max(abs(before[k] - after[k]) / max(before[k], after[k]) for k in ("read_gb_s", "matrix_gflop_s"))


def measure(o, prompt, new, metric):
    """Interleaved pairs; gives the kept ones, and how many were dropped."""
    kept, dropped, before = [], 0, probe()
    for i in range(o.pairs):
        sides = [("tpl", lambda: tpl_speed(o, prompt, new)), ("peer", lambda: in_child(o, "speed", prompt, new, i + 1))]
        got = {name: run() for name, run in (sides if i % 2 == 0 else reversed(sides))}
        after = probe()
        d = drift(before, after)
        pair = {"tpl": got["tpl"][metric], "peer": got["peer"][metric], "before": before, "after": after,
                "isa": got["tpl"]["isa"], "peer_isa": got["peer"]["isa"], "version": got["peer"]["version"]}
        print(f"  pair {i + 1}: tpl {pair['tpl']:8.1f}, llama.cpp {pair['peer']:8.1f} tokens/s, ratio {pair['tpl'] / pair['peer']:.3f}, "
              f"{after['read_gb_s']:.1f} GB/s, {after['matrix_gflop_s']:.0f} GFLOP/s{', dropped: probes differ by %d %%' % round(100 * d) if d > MAX_DRIFT else ''}",
              file=sys.stderr)
        if d > MAX_DRIFT:
            dropped += 1
        else:
            kept.append(pair)
        before = after
    return kept, dropped


def summary(o, metric, kept, dropped, model):
    ratios = [p["tpl"] / p["peer"] for p in kept]
    enough = len(kept) >= MIN_PAIRS
    row = {"peer": "llama.cpp", "version": kept[0]["version"] if kept else None, "metric": metric, "ratios": ratios,
           "median": statistics.median(ratios) if enough else None, "min": min(ratios) if enough else None,
           "max": max(ratios) if enough else None, "dropped": dropped, "verdict": None if not enough else "ahead" if statistics.median(ratios) >= 1 else "behind"}
    print(f"{metric}: ", end="")
    if not enough:
        print(f"no verdict: {len(kept)} of {o.pairs} pairs kept, at least {MIN_PAIRS} are needed (probes before and after differed by more than 10 %)")
        return row

    def share(side):
        if metric == "decode_tok_s": # every weight is read once a token
            return statistics.median(p[side] * model["weight_bytes"] / 1e9 / p["before"]["read_gb_s"] for p in kept), "read bandwidth"
        return statistics.median(p[side] * 2 * model["params"] / 1e9 / p["before"]["matrix_gflop_s"] for p in kept), "matrix peak"

    ours, limit = share("tpl")
    theirs, _ = share("peer")
    print(f"tpl / llama.cpp = {row['median']:.2f} (range {row['min']:.2f} to {row['max']:.2f}, {len(kept)} pairs, {dropped} dropped); "
          f"tpl {statistics.median(p['tpl'] for p in kept):.1f} tokens/s = {100 * ours:.0f} % of {limit}, "
          f"llama.cpp {statistics.median(p['peer'] for p in kept):.1f} = {100 * theirs:.0f} %")
    print(f"  probed {statistics.median(p['before']['read_gb_s'] for p in kept):.1f} GB/s, {statistics.median(p['before']['matrix_gflop_s'] for p in kept):.0f} GFLOP/s; "
          f"isa: tpl {kept[0]['isa']}; llama.cpp {kept[0]['peer_isa']}")
    return row


def agreement(o):
    ours, theirs = tpl_agreement(o), in_child(o, "agreement")["counts"]
    total = sum(len(p["greedy"]) for p in json.load(open(os.path.join(o.reference, "expected.json")))["prompts"])
    print(f"greedy steps equal to the float32 reference, teacher-forced: tpl (act={o.act}) {sum(ours)}, llama.cpp {sum(theirs)} of {total}")
    print(f"  by prompt: tpl {ours}, llama.cpp {theirs}")
    return {"tpl": ours, "llama.cpp": theirs, "total": total}


def main():
    shared = os.environ.get("TPL_SHARED") or "../shared"
    p = argparse.ArgumentParser(description="tpl beside llama.cpp on one file and the same cores")
    p.add_argument("model")
    p.add_argument("--pairs", type=int, default=9, help="interleaved pairs for each figure, at least 7")
    p.add_argument("--prompt", type=int, default=512, help="prompt tokens of the prefill figure")
    p.add_argument("--new", type=int, default=96, help="tokens of the decode figure, after a prompt of 16")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--act", default="auto")
    p.add_argument("--only", choices=["decode", "prefill", "agreement"], help="one figure")
    p.add_argument("--reference", default=shared + "/fixtures/models/llama-smollm2-135m-q4_1", help="folder with expected.json, for the agreement")
    p.add_argument("--json", help="also write the figures to this file")
    p.add_argument("--peer", choices=["speed", "agreement"], help=argparse.SUPPRESS)
    p.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.peer:
        return peer_speed(o) if o.peer == "speed" else peer_agreement(o)
    if o.pairs < 7:
        p.error("at least 7 pairs")
    model = json.loads(tpl("plan", o.model, "--json"))["result"]["model"]
    result = {"file": os.path.basename(o.model), "threads": o.threads, "act": o.act, "cpu": probe()["cpu"], "pairs": []}
    print(f"{result['file']}, {o.threads} threads, {result['cpu']}")
    for metric, prompt, new in (("decode_tok_s", 16, o.new), ("prefill_tok_s", o.prompt, 2)):
        if o.only in (None, metric.split("_")[0]):
            kept, dropped = measure(o, prompt, new, metric)
            result["pairs"].append(summary(o, metric, kept, dropped, model))
    if o.only in (None, "agreement") and os.path.exists(os.path.join(o.reference, "expected.json")) and "smollm2" in o.model.lower():
        result["agreement"] = agreement(o)
    if o.json:
        with open(o.json, "w") as f:
            json.dump(result, f, indent=1)


if __name__ == "__main__":
    main()
