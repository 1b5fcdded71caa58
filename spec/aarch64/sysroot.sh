#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fill build-aarch64/sysroot with the arm64 libraries that tpl and its tests link with, from Debian's packages.
#
#   sh spec/aarch64/sysroot.sh
#
# The packages are unpacked, not installed: apt works on lists of its own under build-aarch64/apt, so this machine's dpkg never hears of arm64, and
# nothing here needs root. libc6 and libgcc-s1 are for running (qemu-aarch64-static -L build-aarch64/sysroot). Safe to run again: a sysroot that is
# there is left alone.
set -eu
cd "$(dirname "$0")/../.."

packages="libc6 libgcc-s1 libluajit-5.1-2 libluajit-5.1-dev libjansson4 libjansson-dev libpcre2-8-0 libpcre2-dev libutf8proc2 libutf8proc-dev
libcmocka0 libcmocka-dev libyaml-0-2 libyaml-dev libexpat1 libexpat1-dev libhwloc15 libhwloc-dev libudev1"
root=$PWD/build-aarch64/sysroot apt=$PWD/build-aarch64/apt

if [ -f "$root/filled-with" ] && [ "$(cat "$root/filled-with")" = "$packages" ]; then exit 0; fi

rm -rf "$root" "$apt"
mkdir -p "$root" "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/packages"
cat >"$apt/apt.conf" <<END
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
Dir::State::status "/dev/null";
APT::Architectures { "$(dpkg --print-architecture)"; "arm64"; };
APT::Sandbox::User "root"; // the folders here belong to whoever runs this
END
export APT_CONFIG="$apt/apt.conf"
apt-get -qq update # a source without arm64 is only a warning: what counts is whether the packages come
cd "$apt/packages"
for package in $packages; do
  apt-get -qq download "$package:arm64"
done
for file in *.deb; do
  dpkg-deb -x "$file" "$root"
done
rm -rf "$apt"
printf '%s' "$packages" >"$root/filled-with"
