-- SPDX-License-Identifier: Apache-2.0
--- Say a placement in the words of TensorRT-LLM.
-- Read from TensorRT-LLM's commands/serve.py (commit 00209af1; 1.2.1 is the release on PyPI): flags and --config; the file's keys pp_partition
-- (prototype) and enable_attention_dp are those of its LLM API.
-- --tp_size counts the ranks of a stage, attention groups included. Different GPUs in a TP group are refused by the project
-- (NVIDIA/TensorRT-LLM#1491).
local facts = require("tpl.emit.facts")
local placement = require("tpl.emit.placement")

local M = { target = "trtllm", title = "TensorRT-LLM", version = "1.2.1", same = "name" }

--- Give the command of one replica: words, variables, and lines of the YAML file that takes what has no flag.
---@param c tpl.emit.Command
function M.command(c)
  local f, first, env, config = c.facts, c.replica.stages[1], {}, {}
  local w = { "trtllm-serve", f.model, "--host", f.host, "--port", c.port, "--tp_size", first.tp * first.dp, "--pp_size", #c.replica.stages }
  local function add(...) for _, x in ipairs { ... } do w[#w + 1] = x end end
  if c.n_hosts > 1 then table.insert(w, 1, "trtllm-llmapi-launch") end
  if c.ep > 1 then add("--ep_size", c.ep) end
  if f.context then add("--max_seq_len", f.context) end
  if f.concurrency then add("--max_batch_size", f.concurrency) end
  local share = facts.kv_share(c.replica)
  if share then add("--kv_cache_free_gpu_memory_fraction", ("%.2f"):format(share)) end
  if c.n_hosts > 1 then add("--gpus_per_node", #c.replica.devices / c.n_hosts) end
  if placement.has_unequal_stages(c.replica) then
    config[#config + 1] = "pp_partition: [" .. table.concat(placement.layer_counts(c.replica), ", ") .. "]"
  end
  if first.dp > 1 then config[#config + 1] = "enable_attention_dp: true" end
  if c.numa and not c.numa_is_one then
    env[1] = { name = "TLLM_NUMA_AWARE_WORKER_AFFINITY", value = "1", why = "the GPUs are on several NUMA nodes; each worker goes to its own" }
  end
  return w, env, config
end

--- What the reader of a script for several hosts has to know.
M.launch = "Several hosts: start it under MPI, one task per GPU, e.g. srun -N %d --ntasks-per-node=%d --mpi=pmix sh THIS_FILE"

return M
