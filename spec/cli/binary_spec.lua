-- SPDX-License-Identifier: Apache-2.0
-- The built program, from outside: what only a process shows. TPL_BIN names another binary than build/tpl.
local helper = require("cli.helper")
local json = require("tpl.json")
local sys = require("tpl.core").sys

local BIN = os.getenv("TPL_BIN") or "build/tpl"

--- Run a shell line; gives its output and exit code.
local function shell(line)
  local pipe = io.popen("( " .. line .. " ); echo $?")
  local text = pipe:read("*a")
  pipe:close()
  local body, code = text:match("^(.-)(%d+)\n$")
  return body, tonumber(code)
end

local function it_with_binary(name, fn)
  it(name, function()
    if not sys.is_file(BIN) then return pending("no " .. BIN) end
    fn()
  end)
end

describe("the tpl binary", function()
  local folder
  setup(function() folder = helper.folder() end)
  teardown(function() helper.remove(folder) end)

  it_with_binary("passes exit codes on and keeps stdout clean of errors", function()
    local text, code = shell(BIN .. " nonsense 2>/dev/null")
    assert.same({ "", 2 }, { text, code })
    text, code = shell(BIN .. " nonsense 2>&1")
    assert.same({ "tpl: tpl nonsense: unknown command (see tpl help)\n", 2 }, { text, code })
    assert.equal(0, select(2, shell(BIN .. " help >/dev/null")))
  end)

  it_with_binary("fails when stdout cannot be written", function()
    if not sys.stat("/dev/full") then return pending("no /dev/full") end
    local text, code = shell("(" .. BIN .. " version --json >/dev/full) 2>&1")
    assert.same({ "tpl: stdout: No space left on device\n", 1 }, { text, code })
  end)

  it_with_binary("runs from any folder", function()
    local _, code = shell("cd / && " .. sys.realpath(BIN) .. " help >/dev/null")
    assert.equal(0, code)
  end)

  it_with_binary("reads rows from stdin", function()
    local text, code = shell([[printf '{"id":"a","template":"{{ 1 + 1 }}"}\nbad\n' | ]] .. BIN .. " template --in -")
    assert.equal(0, code)
    local first, second = text:match("^(.-)\n(.-)\n$")
    assert.equal("2", json.decode(first).prompt)
    assert.equal("bad_json", json.decode(second).error.code)
  end)

  it_with_binary("runs a Lua file with tpl, R, S and arguments", function()
    helper.write(folder .. "/x.lua", 'assert(require("tpl") == tpl and R and S) print(#arg, arg[1], ..., tpl.mesh("tp=2"))')
    local text, code = shell(BIN .. " lua " .. folder .. "/x.lua one 2>&1")
    assert.same({ "1\tone\tone\ttp=2\n", 0 }, { text, code })
  end)

  it_with_binary("exits 3 with file:line when that file fails", function()
    helper.write(folder .. "/bad.lua", "local x = nil\nprint(x.y)")
    local text, code = shell(BIN .. " lua " .. folder .. "/bad.lua 2>&1")
    assert.equal(3, code)
    assert.matches("^tpl: " .. folder:gsub("%p", "%%%0") .. "/bad%.lua:2: attempt to index", text)
  end)

  it_with_binary("sets an environment in which luajit finds the module", function()
    local text, code = shell('eval "$(' .. BIN .. ' env)" && cd / && luajit -e \'print(require("tpl").version)\' 2>&1 && command -v tpl')
    assert.equal(0, code)
    assert.matches("^%d+%.%d+%.%d+\n/.*/tpl\n$", text)
  end)

  it_with_binary("ends with 130 when it is interrupted", function()
    helper.write(folder .. "/loop.lua", "while true do end")
    local _, code = shell(BIN .. " lua " .. folder .. "/loop.lua & sleep 0.3; kill -INT $!; wait $!")
    assert.equal(130, code)
  end)

  it_with_binary("refuses knobs that mean nothing with exit 2", function()
    for _, knob in ipairs { "TPL_FAULT=explode", "TPL_SEED=x", "TPL_PAGE_ORDER=random", "TPL_DETERMINISTIC=yes", "TPL_ISA=abacus" } do
      local text, code = shell(knob .. " " .. BIN .. " plan m --json 2>/dev/null")
      assert.equal(2, code, knob)
      assert.equal(knob:match("^[^=]+"), json.decode(text).error.where)
    end
  end)
end)
