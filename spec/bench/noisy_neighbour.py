# SPDX-License-Identifier: Apache-2.0
"""What decode keeps when every core also has another busy process: noisy over quiet speed of tpl and of llama.cpp, in the same pairs."""
import subprocess
import sys
import time

import models
import pairs
import sides

CONTEXT, NEW, BAR = 1024, 64, 0.35


class Neighbours:
    """One busy process per core, in the session of the rest, so that a fair scheduler gives each half a core.

    (Linux groups tasks by session: two sessions of one busy process each would get two thirds of their cores against a team on both.)
    """

    def __init__(self, n):
        self.n = n

    def __enter__(self):
        busy = [sys.executable, "-c", "while True: pass"]
        self.busy = [subprocess.Popen(busy) for _ in range(self.n)]
        time.sleep(0.2)

    def __exit__(self, *_):
        for p in self.busy:
            p.kill()
            p.wait()


def measure(side, i, cores):
    quiet = side.speed(16, NEW, 3, i + 1)["decode"]
    with Neighbours(cores):
        noisy = side.speed(16, NEW, 3, i + 1)["decode"]
    return {"quiet": quiet, "noisy": noisy}


def side_row(side, s, bar, done):
    row = pairs.judge(f"noisy neighbour, {side.name}", bar, done, lambda got: got[s]["noisy"] / got[s]["quiet"])
    row["quiet_tok_s"] = pairs.middle(done, lambda p: p["got"][s]["quiet"])
    row["noisy_tok_s"] = pairs.middle(done, lambda p: p["got"][s]["noisy"])
    row["isa"] = side.isa
    print(f"  {row['row']}: {pairs.figure(row)}\n    quiet {row['quiet_tok_s']:.1f} tokens/s, noisy {row['noisy_tok_s']:.1f}")
    return row


def run(o):
    """A row for tpl with its bar and one for llama.cpp without."""
    model = models.path("q4_1")
    us, them = sides.Tpl(model, CONTEXT, [f"threads={o.threads}"]), sides.Peer("llamacpp", model, CONTEXT, o.threads)
    print(f"\nnoisy neighbour: decode on q4_1 beside {o.threads} busy processes over decode without")
    try:
        done = pairs.interleave((us, them), o.pairs, lambda side, i: measure(side, i, o.threads))
    finally:
        them.close()
    return [side_row(us, 0, BAR, done), side_row(them, 1, None, done)]
