-- SPDX-License-Identifier: Apache-2.0
--- Give the parts of a start script that are the same for every plan: POSIX sh, each a function with its own comment.
local M = {}

M.fail = [[
fail() {
  printf '%s: %s\n' "$0" "$*" >&2
  exit 1
}
]]

M.lookup = [[
# Index of each GPU now, in PCI order; the plan names them by @WHAT@.
table=$(nvidia-smi --query-gpu=index,@FIELD@ --format=csv,noheader) || fail "nvidia-smi lists no GPUs"

index_of() {
  printf '%s\n' "$table" | while IFS=', ' read -r index name _; do
    if [ "$name" = "$1" ]; then printf '%s\n' "$index"; fi
  done
}

indices() {
  list=
  for name in "$@"; do
    index=$(index_of "$name")
    [ -n "$index" ] || fail "GPU $name of the plan is not in this machine"
    list=${list:+$list,}$index
  done
  printf '%s\n' "$list"
}
]]

M.here = [[
# Whether any of these GPUs is in this machine.
is_here() {
  for name in "$@"; do
    if [ -n "$(index_of "$name")" ]; then return 0; fi
    case $(nvidia-smi -L) in *"$name"*) return 0 ;; esac # a MIG slice
  done
  return 1
}
]]

M.mig = [[
# CUDA takes the UUID of a MIG slice as it is; the slice must exist.
slices() {
  list=
  for name in "$@"; do
    case $(nvidia-smi -L) in
      *"$name"*) list=${list:+$list,}$name ;;
      *) fail "MIG slice $name of the plan is not in this machine" ;;
    esac
  done
  printf '%s\n' "$list"
}
]]

M.bind = [[
# bind NODE CPUS COMMAND..: run on the cores and the memory of a NUMA node.
bind() {
  node_cores=$1 cpus=$2
  shift 2
  if command -v numactl >/dev/null 2>&1 && numactl --cpunodebind="$node_cores" --membind="$node_cores" true 2>/dev/null; then
    exec numactl --cpunodebind="$node_cores" --membind="$node_cores" "$@"
  fi
  if [ -n "$cpus" ] && command -v taskset >/dev/null 2>&1; then
    echo "warning: cores are bound, memory is not: no numactl, or set_mempolicy is not allowed here (SYS_NICE)" >&2
    exec taskset -c "$cpus" "$@"
  fi
  echo "warning: not bound to NUMA node $node_cores: neither numactl nor taskset works here" >&2
  exec "$@"
}
]]

return M
