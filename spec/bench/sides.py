# SPDX-License-Identifier: Apache-2.0
"""Who is measured: tpl, a process a time, and peers, each in a process that lives as long as its contest."""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("TPL_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "tpl")
PEERS = os.path.join(CACHE, "peers")
LLAMA_SITE = os.path.join(PEERS, "llama_cpp_python-0.3.36.site")


def say(text):
    print(text, file=sys.stderr, flush=True)


class Missing(Exception):
    """A peer, a model file or a fixture that cannot be had: the rows that need it say why."""


def tpl(*words):
    done = subprocess.run(["build/tpl", *words], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"build/tpl {' '.join(words)}: exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


class Tpl:
    def __init__(self, model, context, words=(), name="tpl"):
        self.model, self.words, self.name, self.isa = model, [*words, f"want.context={context}", "want.concurrency=1"], name, None

    def plan(self):
        return json.loads(tpl("plan", self.model, *self.words, "--json"))["result"]

    def speed(self, prompt, new, runs, seed):
        del seed  # tpl bench has ids of its own
        text = tpl("bench", self.model, *self.words, "--prompt", str(prompt), "--new", str(max(new, 2)), "--runs", str(runs), "--json")
        case = json.loads(text)["result"]["cases"][0]
        self.isa = case["isa"]
        return {"prefill": case["prefill_tok_s"], "decode": case["decode_tok_s"] if new > 1 else None}

    def close(self):
        pass


def install(peer):
    """Install a peer unless it is there."""
    if subprocess.run(["sh", os.path.join(HERE, "peers", "install.sh"), peer], check=False).returncode:
        raise Missing(f"{peer} cannot be installed here (its message is above)")


def python_of(peer, threads):
    """The Python that has the peer's package, and its environment."""
    env = dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONDONTWRITEBYTECODE="1")
    if peer == "llamacpp":
        return sys.executable, dict(env, PYTHONPATH=LLAMA_SITE)
    folder = os.path.join(PEERS, peer)
    preload = [os.path.join(folder, f) for f in ("tcmalloc/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "lib/libiomp5.so")]
    if peer == "vllmcpu":  # it asks for both
        env["LD_PRELOAD"] = ":".join(f for f in preload if os.path.exists(f))
    return os.path.join(folder, "bin", "python"), env


class Peer:
    """A process that runs peers/host.py."""

    def __init__(self, peer, model, context, threads):
        install(peer)
        self.name = peer
        python, env = python_of(peer, threads)
        log = os.path.join(PEERS, peer + ".run.log")
        with open(log, "w") as errors:
            self.process = subprocess.Popen([python, os.path.join(HERE, "peers", "host.py"), peer, model, str(threads), str(context)], env=env,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.log = log
        hello = self._answer()
        self.version, self.isa = hello["version"], hello["isa"]

    def _answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise Missing(f"{self.name} died, see {self.log}")
        return json.loads(line)

    def speed(self, prompt, new, runs, seed):
        try:
            self.process.stdin.write(json.dumps({"prompt": prompt, "new": new, "runs": runs, "seed": seed}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer says that it died
        return self._answer()

    def close(self):
        self.process.communicate()  # the end of its input ends it
