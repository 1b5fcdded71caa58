# SPDX-License-Identifier: Apache-2.0
"""llama.cpp through its C interface, as llama-cpp-python ships it: no sampler, and flash attention where it is the faster choice.

On CPUs flash attention helps prompts and hurts decoding behind long ones, so there are two contexts on the same weights, and the first
time that a kind of work is asked for both run it.
"""
import ctypes
import time

import llama_cpp

lib = llama_cpp.llama_cpp
BATCH = 2048  # most tokens of one call; llama.cpp cuts it into pieces of 512
silent = lib.llama_log_callback(lambda level, text, data: None)  # kept here: C holds a pointer to it
lib.llama_log_set(silent, ctypes.c_void_p(0))
lib.llama_backend_init()


class Engine:
    version = "llama-cpp-python " + llama_cpp.__version__

    def __init__(self, model, threads, context):
        self.model = lib.llama_model_load_from_file(model.encode(), lib.llama_model_default_params())
        if not self.model:
            raise SystemExit("llama.cpp cannot load " + model)
        self.contexts = {flash: self._context(context, threads, flash) for flash in (0, 1)}  # 0: without flash attention, the package's default
        self.faster = {}  # (ids of the prompt, whether tokens follow) -> 0 or 1
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.batch = lib.llama_batch_init(BATCH, 0, 1)
        on = (w.split(" = ")[0].strip() for w in lib.llama_print_system_info().decode().split("|") if w.strip().endswith("= 1"))
        self.isa = " ".join(on)

    def _context(self, context, threads, flash):
        p = lib.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch, p.n_outputs_max = context, BATCH, 512, threads, threads, BATCH
        p.flash_attn_type = flash
        return lib.llama_init_from_model(self.model, p)

    def _decode(self, context, ids, first, all_rows=False):
        b = self.batch
        b.n_tokens = len(ids)
        for i, token in enumerate(ids):
            b.token[i], b.pos[i], b.n_seq_id[i], b.seq_id[i][0] = token, first + i, 1, 0
            b.logits[i] = all_rows or i == len(ids) - 1
        if lib.llama_decode(context, b):
            raise SystemExit("llama_decode failed")
        lib.llama_synchronize(context)

    def time(self, ids, new):
        kind, part = (len(ids), new > 1), 1 if new > 1 else 0
        if kind not in self.faster:
            tried = {flash: min(self._time(flash, ids, min(new, 32))[part] for _ in range(2)) for flash in self.contexts}
            self.faster[kind] = min(tried, key=tried.get)
        return self._time(self.faster[kind], ids, new)

    def _time(self, flash, ids, new):
        context = self.contexts[flash]
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        t0 = time.perf_counter()
        for first in range(0, len(ids), BATCH):
            self._decode(context, ids[first:first + BATCH], first)
        t1 = time.perf_counter()
        for i in range(new - 1):  # the first new token comes out of the prompt; which ids follow does not matter for the time
            self._decode(context, ids[i % len(ids):i % len(ids) + 1], len(ids) + i)
        return t1 - t0, time.perf_counter() - t1

    def logits(self, ids):
        """Float32 rows of logits, one behind each of at most BATCH ids."""
        import numpy
        context = self.contexts[0]
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        self._decode(context, ids, 0, all_rows=True)
        rows = ctypes.cast(lib.llama_get_logits(context), ctypes.POINTER(ctypes.c_float))
        return numpy.ctypeslib.as_array(rows, (len(ids), self.vocab)).copy()


def quantize(source, target, ftype):
    """Write `source` in another format; ftype is a number of llama.h (BF16 32, Q8_0 7, Q4_0 2)."""
    p = lib.llama_model_quantize_default_params()
    p.ftype, p.allow_requantize = ftype, True
    if lib.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(p)):
        raise SystemExit("llama.cpp cannot write " + target)
