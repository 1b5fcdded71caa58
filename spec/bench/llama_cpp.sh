#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compare tpl with llama.cpp (as llama-cpp-python 0.3.36 from PyPI, built here for the native ISA) on one file and the same cores.
#
#   sh spec/bench/llama_cpp.sh [--build-only] [MODEL.gguf] [compare.py options]
#
# The peer is built once into the cache: ${TPL_CACHE:-${XDG_CACHE_HOME:-~/.cache}/tpl}/peers/. MODEL is the quickstart model unless given.
# Measuring takes some minutes and wants an otherwise idle machine; how, and what the figures mean, is in spec/bench/README.md.
set -eu
cd "$(dirname "$0")/../.."

version=0.3.36
peers=${TPL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tpl}/peers
name=llama_cpp_python-$version
source=$peers/$name
site=$peers/$name.site # what is put on PYTHONPATH

say() { printf 'llama_cpp: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# GCC 12's _tile_loadconfig tells the compiler that it reads 8 of the 64 bytes, so stores to the rest are dropped at -O3 and llama.cpp
# dies with SIGILL at the first quantised prompt on a machine with AMX. The barrier makes the stores happen; elsewhere it does nothing.
patch_amx() {
  file=$source/vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp
  grep -q 'tpl: stores' "$file" && return
  sed -i 's|^\( *\)_tile_loadconfig(&tc);|\1__asm__ volatile("" : : "r"(\&tc) : "memory"); // tpl: stores before the load, GCC 12\n&|' "$file"
  grep -q 'tpl: stores' "$file" || die "$file: _tile_loadconfig(&tc) is not where it was: the AMX fix cannot be applied"
}

build_peer() {
  mkdir -p "$peers"
  if [ ! -f "$peers/$name.tar.gz" ]; then
    say "downloading the source of llama-cpp-python $version"
    python3 -m pip download --quiet --no-deps --no-binary :all: --dest "$peers" "llama-cpp-python==$version" >&2
  fi
  say "building llama-cpp-python $version into $site (many minutes on 2 cores)"
  rm -rf "$source" "$site.tmp"
  tar xzf "$peers/$name.tar.gz" -C "$peers"
  patch_amx
  CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" python3 -m pip install --quiet --target "$site.tmp" "$source" >"$peers/$name.log" 2>&1 ||
    die "the build failed, see $peers/$name.log"
  rm -rf "$site"
  mv "$site.tmp" "$site"
  rm -rf "$source"
}

build_only=no
if [ "${1:-}" = --build-only ]; then build_only=yes; shift; fi
[ -d "$site" ] || build_peer
[ $build_only = no ] || exit 0

case ${1:-} in
  '' | --*) model=$(sh examples/fetch_smollm2.sh) ;;
  *) model=$1; shift ;;
esac
[ -x build/tpl ] || die "build/tpl is missing: run sh spec/setup.sh"
PYTHONPATH=$site exec python3 spec/bench/compare.py "$model" "$@"
