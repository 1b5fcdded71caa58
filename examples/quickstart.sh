#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone on Debian 12 to an answer: install packages, build, fetch a small real model, ask it something.
#
#   sh examples/quickstart.sh ["question"]
set -eu
cd "$(dirname "$0")/.."

sh spec/setup.sh
sh examples/fetch_smollm2.sh >/dev/null
question=${1:-Why is the sky blue?}
printf '\n$ build/tpl run examples/hello.lua -- "%s"\n' "$question"
exec build/tpl run examples/hello.lua -- "$question"
