-- SPDX-License-Identifier: Apache-2.0
--- Write a machine on which a policy fails as a topology record, with what it shows in comments above it.
local json = require("tpl.json")
local yaml = require("tpl.yaml")

local M = {}

local order = {
  record = { "source", "hosts", "networks", "devices", "links", "nics" },
  device = { "uid", "kind", "host", "index", "uuid", "pci", "name", "sm", "vbios", "numa", "cpus", "mem_bytes", "free_bytes", "mig", "fabric", "pcie", "busy",
    "labels", "health", "usable", "why_not" },
  link = { "a", "b", "kind", "pcie", "nvlinks", "via_switch", "p2p", "p2p_ba", "gb_s", "us", "gb_s_ba", "us_ba", "data_ok", "source" },
}

local function is_empty(v) return type(v) == "table" and next(v) == nil end

-- Copy what says something, with the keys in this order; lists become arrays.
local function tidy(v, keys)
  if type(v) ~= "table" then return v end
  if v[1] ~= nil then
    local out = {}
    for i, x in ipairs(v) do out[i] = tidy(x, keys) end
    return setmetatable(out, json.array_mt)
  end
  local out, names, seen = {}, {}, {}
  local function add(k, x)
    if seen[k] or is_empty(x) or type(x) == "function" then return end
    seen[k], names[#names + 1], out[k] = true, k, x
  end
  for _, k in ipairs(keys or {}) do if v[k] ~= nil then add(k, tidy(v[k], k == "devices" and order.device or k == "links" and order.link or nil)) end end
  if not keys then
    for k, x in require("tpl.util").pairs(v) do add(k, tidy(x)) end
  end
  return setmetatable(out, { __name = "json.object", keys = names })
end

--- Give the name of the file for a failure: policy, property, seed and number of the draw.
function M.name(p, failure, case)
  local policy = (p.file or p.name):match("([^/]+)$"):gsub("%.lua$", ""):gsub("[^%w_.-]", "_")
  return ("%s-%s-%d-%d.yaml"):format(policy, failure.property, case.seed, case.number)
end

--- Give the text of a record, to be read by `--topo`.
---@param p tpl.Policy
---@param failure tpl.policy.Failure
---@param case tpl.policy.Case
---@return string
function M.text(p, failure, case)
  local want = {}
  for _, key in ipairs { "context", "concurrency", "goal" } do want[#want + 1] = key .. "=" .. tostring(case.want[key]) end
  local exclude = case.want.devices and case.want.devices.exclude
  if exclude then want[#want + 1] = "devices.exclude=" .. table.concat(exclude, ",") end
  local head = { ("tpl test-policy: %s breaks '%s' on this machine"):format(failure.where or p.where, failure.property), failure.message,
    ("model %s, want %s; drawn with seed %d as machine %d (%s), then shrunk"):format(case.model, table.concat(want, " "), case.seed, case.number,
      table.concat(case.kinds, ", ")) }
  return "# " .. table.concat(head, "\n# ") .. "\n" .. yaml.encode(tidy(case.record, order.record), { flow = true })
end

return M
