-- SPDX-License-Identifier: Apache-2.0
--- Say a placement in the words of SGLang.
-- Read from sglang 0.5.23: srt/arg_groups/fields/*.py (flags), srt/distributed/utils.py (SGLANG_PP_LAYER_PARTITION). --tp-size counts the ranks of a
-- stage, attention groups included; --attn-dp-size N replaced --dp-size N --enable-dp-attention. The memory rule is its check
-- SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK: a rank with less than 0.9 of the others' free memory is an error.
local facts = require("tpl.emit.facts")
local placement = require("tpl.emit.placement")

local M = { target = "sglang", title = "SGLang", version = "0.5.23", same = 0.9 }

--- Give the command of one replica: words, and variables it needs.
---@param c tpl.emit.Command
function M.command(c)
  local f, first, env = c.facts, c.replica.stages[1], {}
  local w = { "python3", "-m", "sglang.launch_server", "--model-path", f.model, "--host", f.host, "--port", c.port,
    "--tp-size", first.tp * first.dp, "--pp-size", #c.replica.stages }
  local function add(...) for _, x in ipairs { ... } do w[#w + 1] = x end end
  if first.dp > 1 then add("--attn-dp-size", first.dp) end
  if c.ep > 1 then add("--ep-size", c.ep) end
  if f.context then add("--context-length", f.context) end
  if f.concurrency then add("--max-running-requests", f.concurrency) end
  local share = facts.static_share(c.replica)
  if share then add("--mem-fraction-static", ("%.2f"):format(share)) end
  if c.numa and not c.numa_is_one then
    add("--numa-node")
    for _, node in ipairs(c.numa) do add(node) end
  end
  if c.n_hosts > 1 then
    add("--nnodes", c.n_hosts, "--node-rank", { raw = '"$node"' }, "--dist-init-addr", { raw = ('"$MASTER_ADDR:%d"'):format(50000 + c.replica.i) })
  end
  if placement.has_unequal_stages(c.replica) then
    env[1] = { name = "SGLANG_PP_LAYER_PARTITION", value = table.concat(placement.layer_counts(c.replica), ","),
      why = "layers of each stage as planned; SGLang's own cut is even" }
  end
  return w, env
end

return M
