-- SPDX-License-Identifier: Apache-2.0
--- Say a placement in the words of vLLM.
-- Read from vllm 0.33.0: engine/arg_utils.py (flags), distributed/utils.py (VLLM_PP_LAYER_PARTITION), config/parallel.py (--numa-bind-nodes takes
-- a node per visible GPU). 0.33 takes UUIDs in --device-ids; CUDA_VISIBLE_DEVICES with indices works in it and in the versions before.
local facts = require("tpl.emit.facts")
local placement = require("tpl.emit.placement")

local M = { target = "vllm", title = "vLLM", version = "0.33.0", dp_first = true }

--- Give the command of one replica: words, and variables it needs.
---@param c tpl.emit.Command
---@return (string|{raw: string})[] words
---@return {name: string, value: string, why: string}[] env
function M.command(c)
  local f, first, env = c.facts, c.replica.stages[1], {}
  local w = { "vllm", "serve", f.model, "--host", f.host, "--port", c.port,
    "--tensor-parallel-size", first.tp, "--pipeline-parallel-size", #c.replica.stages }
  local function add(...) for _, x in ipairs { ... } do w[#w + 1] = x end end
  if first.dp > 1 then add("--data-parallel-size", first.dp) end
  if c.ep > 1 then add("--enable-expert-parallel") end
  if f.context then add("--max-model-len", f.context) end
  if f.concurrency then add("--max-num-seqs", f.concurrency) end
  add("--gpu-memory-utilization", ("%.2f"):format(facts.memory_share(c.replica)))
  if c.numa and not c.numa_is_one then
    add("--numa-bind", "--numa-bind-nodes")
    for _, node in ipairs(c.numa) do add(node) end
  end
  if c.n_hosts > 1 then
    add("--nnodes", c.n_hosts, "--node-rank", { raw = '"$node"' }, "--master-addr", { raw = '"$MASTER_ADDR"' },
      "--master-port", 29501 + c.replica.i)
  end
  if placement.has_unequal_stages(c.replica) then
    env[1] = { name = "VLLM_PP_LAYER_PARTITION", value = table.concat(placement.layer_counts(c.replica), ","),
      why = "layers of each stage as planned; vLLM's own cut is even" }
  end
  return w, env
end

--- Lines of a node that is not the first: it has no HTTP server.
M.follower = 'if [ "$node" -gt 0 ]; then set -- --headless "$@"; fi'

return M
