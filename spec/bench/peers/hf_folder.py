# SPDX-License-Identifier: Apache-2.0
"""Write a GGUF of a Llama-type model as a Hugging Face folder in bf16: hf_folder.py FILE.gguf FOLDER (needs transformers, gguf, accelerate)."""
import os
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

source, target = sys.argv[1:]
where = {"pretrained_model_name_or_path": os.path.dirname(source), "gguf_file": os.path.basename(source)}
full = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
keep = {k: v for k, v in full.config.to_dict().items()
        if k not in ("quantization_config", "_model_name_or_path", "transformers_version", "dtype")}  # those speak of the GGUF
plain = LlamaForCausalLM(LlamaConfig(**keep)).to(torch.bfloat16)
plain.load_state_dict({k: v.to(torch.bfloat16) for k, v in full.state_dict().items()})
plain.save_pretrained(target)
AutoTokenizer.from_pretrained(**where).save_pretrained(target)
