# SPDX-License-Identifier: Apache-2.0
"""The model files that are measured, made once from the quickstart file: path(name) gives one, and makes what is missing."""
import os
import subprocess
import sys

import sides

FOLDER = os.path.join(sides.PEERS, "models")
FILE_TYPES = {"bf16": 32, "q8_0": 7, "q4_0": 2}  # numbers of llama.h
PARAMS_PER_TOKEN = 134515008 - 49152 * 576  # of the quickstart model; a prompt token does not pass the output matrix


def _run(what, command, env=None):
    log = os.path.join(FOLDER, "make.log")
    sides.say(f"making {what}")
    with open(log, "w") as f:
        if subprocess.run(command, check=False, env=env, stdout=f, stderr=f).returncode:
            raise sides.Missing(f"{what} cannot be made, see {log}")


def _quickstart():
    done = subprocess.run(["sh", "examples/fetch_smollm2.sh"], check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise sides.Missing("the quickstart model cannot be fetched")
    return done.stdout.strip()


def _quantized(target, name):
    sides.install("llamacpp")
    python, env = sides.python_of("llamacpp", 1)
    code = f"import llamacpp; llamacpp.quantize({path('q4_1')!r}, {target!r}, {FILE_TYPES[name]})"
    _run(target, [python, "-c", code], dict(env, PYTHONPATH=env["PYTHONPATH"] + ":" + os.path.join(sides.HERE, "peers")))


def _hf_folder(target):
    sides.install("openvinogenai")  # its environment has transformers
    python, env = sides.python_of("openvinogenai", 1)
    _run(target, [python, os.path.join(sides.HERE, "peers", "hf_folder.py"), path("q4_1"), target], env)


def _openvino_int8(target):
    source = path("hf")
    python, env = sides.python_of("openvinogenai", 1)
    _run(target, [python, "-m", "optimum.commands.optimum_cli", "export", "openvino", "--model", source, "--task", "text-generation-with-past",
                  "--weight-format", "int8", target], env)


def path(name):
    """q4_1 (the quickstart file), bf16, q8_0, q4_0: GGUF; hf: folder in bf16; openvino: folder in int8; even: synthetic 1.2 B GGUF."""
    if name == "q4_1":
        return _quickstart()
    target = os.path.join(FOLDER, {"hf": "smollm2-hf", "openvino": "smollm2-openvino-int8", "even": "even-1.2b-q4_0.gguf"}.get(
        name, f"smollm2-{name}.gguf"))
    if os.path.exists(target):
        return target
    os.makedirs(FOLDER, exist_ok=True)
    part = target + ".part"
    if name == "even":
        _run(target, [sys.executable, os.path.join(sides.HERE, "synthetic.py"), part])
    elif name == "hf":
        _hf_folder(part)
    elif name == "openvino":
        _openvino_int8(part)
    else:
        _quantized(part, name)
    os.rename(part, target)
    return target


def weight_bytes(target):
    """Bytes of the weights: of a GGUF the file, of a folder its safetensors or OpenVINO's model."""
    if os.path.isfile(target):
        return os.path.getsize(target)
    return sum(os.path.getsize(os.path.join(target, f)) for f in os.listdir(target) if f.endswith(".safetensors") or f == "openvino_model.bin")
