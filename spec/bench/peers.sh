#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measure tpl beside its peers on the same cores; install the peers and make the model files first where they are missing.
#
#   sh spec/bench/peers.sh [--only ROW,..] [--pairs N] [--threads N] [--json FILE]
#
# Takes half an hour or more and wants an otherwise idle machine. What the rows mean: spec/bench/README.md.
set -eu
cd "$(dirname "$0")/../.."
[ -x build/tpl ] || { echo 'peers: build/tpl is missing: run sh spec/setup.sh' >&2; exit 1; }
PYTHONDONTWRITEBYTECODE=1 exec python3 spec/bench/peers.py "$@"
