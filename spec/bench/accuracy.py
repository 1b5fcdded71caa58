# SPDX-License-Identifier: Apache-2.0
"""How near to float32 an engine stays: mean KL divergence of the next-token distribution, and the stored greedy steps it takes.

    PYTHONPATH=LLAMA_SITE python3 spec/bench/accuracy.py tpl|llamacpp MODEL.gguf FIXTURE THREADS [key=value..]

FIXTURE is a folder with transformers' float32 answers, as ../shared/fixtures/models/llama-smollm2-135m-q4_1: per prompt the ids and logits of
the 32 likeliest tokens and the log-sum-exp of every row. KL(reference || engine), in nats, is taken from those 32 and one bucket for the
rest of the vocabulary, so it is a lower bound of the whole one. Every engine reads the same ids: the prompt and the stored greedy ids.
Prints {"kl", "rows", "greedy", "steps"}.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy


def kl_of_rows(got, ids, logits, logsumexp):
    """Sum over rows of KL; got [rows, vocab], ids and logits [rows, top] and logsumexp [rows] of the reference."""
    got = got.astype(numpy.float64)
    peak = got.max(axis=1)
    log_q = numpy.take_along_axis(got, ids, axis=1) - (peak + numpy.log(numpy.exp(got - peak[:, None]).sum(axis=1)))[:, None]
    log_p = logits.astype(numpy.float64) - logsumexp.astype(numpy.float64)[:, None]
    p, rest_p, rest_q = numpy.exp(log_p), 1 - numpy.exp(log_p).sum(axis=1), 1 - numpy.exp(log_q).sum(axis=1)
    both = (rest_p > 0) & (rest_q > 0)
    return (p * (log_p - log_q)).sum() + (rest_p[both] * numpy.log(rest_p[both] / rest_q[both])).sum()


def tpl_logits(model, words, prompts):
    """Logits of each list of ids, from one run of `tpl logits`."""
    with tempfile.TemporaryDirectory() as folder:
        text = "".join(json.dumps({"id": str(i), "ids": ids}) + "\n" for i, ids in enumerate(prompts))
        subprocess.run(["build/tpl", "logits", model, *words, "--in", "-", "--out", folder], input=text, text=True, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for i in range(len(prompts)):
            yield numpy.load(os.path.join(folder, f"{i}.npy"))


def llamacpp_logits(model, threads, prompts):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers"))
    import llamacpp
    engine = llamacpp.Engine(model, threads, 2048)
    return map(engine.logits, prompts)


def main():
    engine, model, folder, threads, words = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:]
    with open(os.path.join(folder, "expected.json")) as f:
        prompts = json.load(f)["prompts"]
    forced = [p["ids"] + p["greedy"][:-1] for p in prompts]
    rows = tpl_logits(model, [f"threads={threads}", *words], forced) if engine == "tpl" else llamacpp_logits(model, threads, forced)
    total = {"kl": 0.0, "rows": 0, "greedy": 0, "steps": 0}
    for prompt, got in zip(prompts, rows):
        n, top = prompt["top_shape"]
        ids, logits, lse = (numpy.fromfile(os.path.join(folder, prompt[k]), kind) for k, kind in
                            (("top_ids", "<i4"), ("top_logits", "<f4"), ("logsumexp", "<f4")))
        total["kl"] += float(kl_of_rows(got[:n], ids.reshape(n, top), logits.reshape(n, top), lse))
        total["rows"] += n
        steps = got[len(prompt["ids"]) - 1:].argmax(axis=1)
        total["greedy"] += int((steps == numpy.array(prompt["greedy"])).sum())
        total["steps"] += len(prompt["greedy"])
    total["kl"] /= total["rows"]
    print(json.dumps(total))


if __name__ == "__main__":
    main()
