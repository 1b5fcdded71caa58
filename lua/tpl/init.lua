-- SPDX-License-Identifier: Apache-2.0
--- Gather the parts of the library in one table; each is loaded when it is first asked for.
-- Works in `tpl lua`, in plain luajit and under busted. What a later version brings raises "not in this version".
local tpl = { version = "0.1.0" }

local function module(name) return function() return require(name) end end

local function member(name, field) return function() return require(name)[field] end end

local parts = {
  R = member("tpl.plan.layout", "R"), S = member("tpl.plan.layout", "S"),
  gqa = member("tpl.plan.layout", "gqa"), use = member("tpl.plan.layout", "use"),
  layout = module("tpl.plan.layout"), model = module("tpl.model"),
  mesh = member("tpl.plan.mesh", "new"), partition = module("tpl.plan.partition"),
  pairs = member("tpl.util", "pairs"), pack = module("tpl.pack"),
  plan = module("tpl.plan.make"), open = member("tpl.engine", "open"),
  args = member("tpl.deploy", "args"), deploy = module("tpl.deploy"),
  json = module("tpl.json"), tokenizer = module("tpl.tokenizer"), template = module("tpl.template"), npy = module("tpl.npy"),
  topo = module("tpl.topo"), cost = module("tpl.cost"), policy = module("tpl.policy"), yaml = module("tpl.yaml"), xml = module("tpl.xml"),
  comm = member("tpl.core", "comm"), core = module("tpl.core"), err = module("tpl.err"),
}

local later = { "router", "op" }

for _, name in ipairs(later) do
  parts[name] = function()
    require("tpl.err").throw {
      code = "not_in_version", where = "tpl." .. name, message = "not in this version", hint = "see `tpl help` for what there is",
    }
  end
end

--- List the names of the parts, sorted; those that a later version brings are left out.
function tpl.names()
  local names = {}
  for name in pairs(parts) do names[#names + 1] = name end
  for i = #names, 1, -1 do
    for _, name in ipairs(later) do
      if names[i] == name then table.remove(names, i) break end
    end
  end
  table.sort(names)
  return names
end

return setmetatable(tpl, {
  __index = function(self, name)
    local load = parts[name]
    if not load then return nil end
    local value = load()
    rawset(self, name, value)
    return value
  end,
})
