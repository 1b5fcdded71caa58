-- SPDX-License-Identifier: Apache-2.0
--- The layer rules of the tree (core/ARCHITECTURE.md), read off the #include and require lines: nothing reaches up or sideways.
local tree = require("spec.support.tree")

-- Which layers each may include besides itself. Siblings (model, token, comm, topo, kernels) never include each other.
local allowed = {
  base = "",
  model = "base",
  token = "base",
  comm = "base",
  topo = "base",
  kernels = "base",
  exec = "base model token comm kernels",
  serve = "base model token comm kernels exec",
  bind = "base model token comm topo kernels exec serve",
}

local c_files = tree.files({ "core", "kernels" }, { "%.[ch]$", "%.inc$", "%.cuh?$" })

local function layer_of(path)
  return path:match("^core/([^/]+)/") or path:match("^(kernels)/")
end

local function folder_of(path) return path:match("^(.*)/") end

local function is_allowed(layer, dep)
  return layer == dep or (" " .. allowed[layer] .. " "):find(" " .. dep .. " ", 1, true) ~= nil
end

--- Calls f(path, line number, included name, '"' or '<') for every #include; f gives a complaint or nil.
local function complaints(f)
  local out = {}
  for _, path in ipairs(c_files) do
    for i, line in ipairs(tree.lines(tree.read(path))) do
      local mark, name = line:match('^%s*#%s*include%s+(["<])([^">]+)')
      local bad = name and f(path, name, mark)
      if bad then out[#out + 1] = ("%s:%d: %s"):format(path, i, bad) end
    end
  end
  return out
end

describe("the layers of core/ and kernels/", function()
  it("are all known to this spec", function()
    for _, path in ipairs(c_files) do assert.truthy(allowed[layer_of(path) or ""], path) end
  end)

  it("include only layers below themselves, by paths that show the layer", function()
    assert.same({}, complaints(function(path, name, mark)
      if mark == "<" then return end
      local layer, dep = layer_of(path), name:match("^([^/]+)/")
      if not dep or not allowed[dep] then return ('"%s" does not start with the name of a layer'):format(name) end
      if not is_allowed(layer, dep) then return ('%s includes "%s": %s may include %s'):format(layer, name, layer, allowed[layer]) end
    end))
  end)

  it("include files that exist", function()
    assert.same({}, complaints(function(_, name, mark)
      if mark == "<" then return end
      for _, root in ipairs { "core/", "" } do
        local f = io.open(root .. name)
        if f then
          f:close()
          return
        end
      end
      return ('"%s" is nowhere'):format(name)
    end))
  end)

  it("keep <lua.h> and its kin inside core/bind", function()
    assert.same({}, complaints(function(path, name, mark)
      local is_lua = mark == "<" and (name:find("^lua") or name == "lauxlib.h" or name == "lualib.h")
      if is_lua and layer_of(path) ~= "bind" then return "<" .. name .. "> outside core/bind" end
    end))
  end)

  it("keep *_priv.h inside its own folder", function()
    assert.same({}, complaints(function(path, name, mark)
      if mark == "<" or not name:find("_priv%.h$") then return end
      local home = name:match("^kernels/") and folder_of(name) or "core/" .. folder_of(name)
      if folder_of(path) ~= home then return ('"%s" belongs to %s'):format(name, home) end
    end))
  end)

  it("catch a planted violation", function() -- the rule itself, not the tree
    assert.is_false(is_allowed("model", "token"))
    assert.is_false(is_allowed("kernels", "exec"))
    assert.is_false(is_allowed("exec", "serve"))
    assert.is_true(is_allowed("serve", "token"))
  end)
end)

describe("the layers of Lua", function()
  -- {files, what they must not require, why}
  local rules = {
    { "^lua/tpl/plan/", { "^tpl%.cli" }, "the planner knows nothing of the command line" },
    { "^lua/tpl/", { "^tpl%.cli" }, "the API knows nothing of the command line", "^lua/tpl/cli/" },
    { "^lua/tpl/plan/[^/]*$", { "^tpl%.engine$" }, "plans are made without an engine" },
    { "^lua/tpl/jinja/", { "^tpl%.plan", "^tpl%.engine", "^tpl%.core" }, "the template interpreter is pure Lua" },
    { "^policies/", { "^tpl%.core", "^ffi$" }, "policies are pure functions" },
    { "^lua/tpl/layouts/", { ".*" }, "a layout is a table" },
  }

  it("require nothing above themselves", function()
    local bad = {}
    for _, path in ipairs(tree.files({ "lua", "policies" }, { "%.lua$" })) do
      for i, line in ipairs(tree.lines(tree.read(path))) do
        local name = not line:find("^%s*%-%-") and line:match("require%s*%(?%s*[\"']([%w_.]+)[\"']")
        for _, rule in ipairs(name and rules or {}) do
          for _, pattern in ipairs(rule[2]) do
            if path:find(rule[1]) and not (rule[4] and path:find(rule[4])) and name:find(pattern) then
              bad[#bad + 1] = ("%s:%d: requires %s: %s"):format(path, i, name, rule[3])
            end
          end
        end
      end
    end
    assert.same({}, bad)
  end)

  it("name only modules that exist", function()
    local bad = {}
    for _, path in ipairs(tree.files({ "lua", "policies", "examples" }, { "%.lua$" })) do
      for name in tree.read(path):gmatch("require%s*%(?%s*[\"'](tpl[%w_.]*[%w_])[\"']") do -- a name that ends in a point is put together
        local file = "lua/" .. name:gsub("%.", "/")
        local f = io.open(file .. ".lua") or io.open(file .. "/init.lua")
        if f then f:close() elseif name ~= "tpl.core" and name ~= "tpl.build" then bad[#bad + 1] = path .. ": " .. name end
      end
    end
    assert.same({}, bad)
  end)
end)
