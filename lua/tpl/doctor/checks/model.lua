-- SPDX-License-Identifier: Apache-2.0
--- Checks of a model against the GPUs that would serve it.
local finding = require("tpl.doctor.finding")

local ok, skip, warn, fail = finding.ok, finding.skip, finding.warn, finding.fail

local COUNTS = { "TENSOR_PARALLEL_SIZE", "TP_SIZE", "NUM_GPUS", "NPROC_PER_NODE" }

--- The degree of tensor parallelism: as given, else from the environment, else the number of visible GPUs.
local function degree(f, model)
  if model.tp then return model.tp, "tp=" .. model.tp end
  if model.has_deploy then return nil end -- its placement policy decides
  for _, name in ipairs(COUNTS) do
    local n = tonumber(f.env[name] or "")
    if n then return n, string.format("%s=%d (%s)", name, n, f.env_where) end
  end
  if #f.group > 0 then return #f.group, #f.group .. " visible GPUs" end
end

local function divisors(heads, kv)
  local out = {}
  for n = 1, math.min(heads, 64) do
    if heads % n == 0 and (not kv or kv % n == 0 or n % kv == 0) then out[#out + 1] = n end
  end
  return table.concat(out, ", ")
end

local function tp_heads(f)
  if #f.models == 0 then return skip("no FILE or MODEL was given") end
  local good, unknown, worst = {}, {}, nil
  local function found(finding_of_model)
    if not worst or (worst.status == "warn" and finding_of_model.status == "fail") then worst = finding_of_model end
  end
  for _, model in ipairs(f.models) do
    local n, why = degree(f, model)
    local heads, kv = model.heads, model.kv_heads
    if not heads then unknown[#unknown + 1] = model.name .. ": the number of heads is unknown"
    elseif not n then unknown[#unknown + 1] = model.name .. ": no tp= is given, and no GPU is known or a placement policy decides"
    else
      local text = string.format("%s has %d attention heads%s (%s), and tp is %d (%s)", model.name, heads, kv
        and string.format(" and %d KV heads", kv) or "", model.where, n, why)
      local fix = string.format("tp of %s; tpl itself cuts unevenly (shares = { tp = { .. } }) or use pp for the rest", divisors(heads, kv))
      -- A deployment is run by tpl, which cuts unevenly; a MODEL may be meant for any engine.
      local verdict = model.has_deploy and warn or fail
      if heads % n ~= 0 then found(verdict(text .. ": not divisible", fix))
      elseif kv and kv % n ~= 0 and n % kv ~= 0 then found(verdict(text .. ": the KV heads neither divide nor replicate", fix))
      elseif kv and n > kv then
        found(warn(text .. string.format(": each KV head is held %d times, so the KV cache does not shrink further", n / kv),
          "tp=" .. kv .. " with pp or replicas"))
      else good[#good + 1] = string.format("%s: %d heads over tp=%d", model.name, heads, n) end
    end
  end
  if worst then return worst end
  if #good == 0 then return skip("%s", table.concat(unknown, "; ")) end
  return ok(table.concat(good, "; "))
end

return {
  { code = "tp_heads", group = "Model", what = "tensor parallel degree against the heads", run = tp_heads,
    why = "engines cut attention by heads: a degree that does not divide them is refused at the start, and 3, 5, 6 or 7 GPUs rarely do" },
}
