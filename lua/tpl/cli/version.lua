-- SPDX-License-Identifier: Apache-2.0
--- The command `tpl version`: what this build is and can do.
local fill = require("tpl.cli.fill")
local gguf = require("tpl.config.gguf")
local hf = require("tpl.config.hf")
local rates = require("tpl.rates")

local M = {}

local function commit()
  local ok, build = pcall(require, "tpl.build")
  return ok and build.commit or "unknown"
end

--- Give the instruction sets that this build has and this machine can run.
local function usable_isas(kernels)
  local names = {}
  for _, isa in ipairs(kernels.isas and kernels.isas() or {}) do
    if type(isa) == "string" then names[#names + 1] = isa elseif isa.usable then names[#names + 1] = isa.name end
  end
  return names
end

local function models()
  local list = {}
  for _, name in ipairs(hf.supported) do list[#list + 1] = name end
  for _, name in ipairs(gguf.supported) do list[#list + 1] = name .. " (gguf)" end
  return list
end

--- Make the result of `tpl version`.
function M.result()
  local kernels = require("tpl.core").kernels
  local why = "this build has no CUDA plugin"
  return {
    commit = commit(), isa = usable_isas(kernels), isa_used = rates.isa(),
    backends = { { name = "cpu", built = true, loaded = true }, { name = "cuda", built = false, loaded = false, why_not = why } },
    transports = { "shm" }, models = models(), formats = { "gguf", "safetensors" }, ops = kernels.ops and kernels.ops() or {},
  }
end

function M.run(ctx)
  local result = M.result()
  if ctx.json then
    ctx:finish(fill.version(result))
    return 0
  end
  ctx.out:text("tpl %s (%s)\n", require("tpl").version, result.commit)
  ctx.out:text("isa        %s, usable: %s\n", tostring(result.isa_used), table.concat(result.isa, " "))
  ctx.out:text("backends   cpu (cuda: %s)\n", result.backends[2].why_not)
  ctx.out:text("transports %s\nmodels     %s\nformats    %s\n", table.concat(result.transports, " "), table.concat(result.models, ", "),
    table.concat(result.formats, " "))
  return 0
end

return M
