-- SPDX-License-Identifier: Apache-2.0
--- The stubs for editors (lua/tpl/_meta/tpl.lua) are what their maker makes today, and name what the live library has, no more.
local slurp = require("spec.support.files").slurp
local stubs = require("spec.structure.stubs")
local tree = require("spec.support.tree")

local PATH = "lua/tpl/_meta/tpl.lua"
local REMAKE = "make them anew: see spec/structure/stubs.lua"

describe("the stubs for editors", function()
  it("are those that the sources give now", function()
    local now, committed = tree.lines(stubs.text()), tree.lines(slurp(PATH))
    for i = 1, math.max(#now, #committed) do assert.equal(now[i], committed[i], PATH .. ":" .. i .. ": " .. REMAKE) end
  end)

  it("have every public function of the live library, and no other", function()
    local live, there, differ = stubs.live(), {}, {}
    for name in ("\n" .. slurp(PATH)):gmatch("\nfunction (tpl[%w_.]*)%(") do there[name] = true end
    for name in pairs(live) do if not there[name] then differ[#differ + 1] = "not in the stubs: " .. name end end
    for name in pairs(there) do if not live[name] then differ[#differ + 1] = "not in the library: " .. name end end
    table.sort(differ)
    assert.same({}, differ)
    assert.truthy(live["tpl.json.decode"] and live["tpl.core.tokenizer.from_json"] and live["tpl.open"])
  end)

  it("say of every function what it does", function()
    local bare, before = {}, ""
    local plain = { ["tpl.layout.is_spec"] = true, ["tpl.partition.gcd"] = true, ["tpl.partition.lcm"] = true, ["tpl.partition.is_dynamic"] = true } -- the name says it
    for line in slurp(PATH):gmatch("[^\n]*") do
      local name = line:match("^function (tpl[%w_.]+)")
      if name and not plain[name] and not before:find("^%-%-%-") then bare[#bare + 1] = line end
      if line ~= "" or before == "" then before = line end
    end
    assert.same({}, bare)
  end)

  it("are Lua", function() assert(loadfile(PATH)) end)

  it("declare the classes that annotations name", function()
    local text, missing = slurp(PATH), {}
    local function is_known(name) return text:find("---@class " .. name .. "\n", 1, true) or text:find("---@class " .. name .. ":", 1, true) end
    for line in text:gmatch("%-%-%-@%w+ [^\n]*") do
      for name in line:gmatch("%f[%w]tpl%.[%w_.]+") do
        name = name:gsub("%.$", "")
        if not line:find("^%-%-%-@class") and name:find("%.%u[%w]*$") and not is_known(name) then missing[name] = line end
      end
    end
    assert.same({}, missing)
  end)
end)
