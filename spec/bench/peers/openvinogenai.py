# SPDX-License-Identifier: Apache-2.0
"""OpenVINO GenAI on the CPU: a folder that optimum exported, timed by a streamer that sees every token."""
import time

import numpy
import openvino
import openvino_genai


class Engine:
    version = "openvino-genai " + openvino_genai.__version__

    def __init__(self, model, threads, context):
        self.pipe = openvino_genai.LLMPipeline(model, "CPU", INFERENCE_NUM_THREADS=threads)
        self.isa = " ".join(openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))

    def time(self, ids, new):
        want, times = openvino_genai.GenerationConfig(), []
        want.max_new_tokens, want.ignore_eos, want.do_sample = new, True, False

        class Clock(openvino_genai.StreamerBase):
            def write(self, token):
                times.extend([time.perf_counter()] * (len(token) if isinstance(token, list) else 1))
                return openvino_genai.StreamingStatus.RUNNING

            def end(self):
                pass

        t0 = time.perf_counter()
        self.pipe.generate(openvino.Tensor(numpy.array([ids], dtype=numpy.int64)), want, Clock())
        return times[0] - t0, times[-1] - times[0]
