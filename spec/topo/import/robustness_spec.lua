-- SPDX-License-Identifier: Apache-2.0
-- Damaged texts: cut anywhere, bytes changed, removed, doubled. A record or an error of code "format" comes out, never an error of Lua,
-- and soon. The oracle is the promise itself; which record comes out of a damaged text is not judged.
local err = require("tpl.err")
local files = require("spec.support.files")
local import = require("tpl.topo.import")
local see = require("spec.topo.import.support")
local tree = require("spec.support.tree")

-- A generator of our own, so that every run tries the same texts (constants of MINSTD, Park and Miller 1988).
local seed = 20260203
local function random(from, to)
  seed = seed * 16807 % 2147483647
  return from + seed % (to - from + 1)
end

local function damage(text)
  for _ = 1, random(1, 8) do
    local at, what = random(1, #text + 1), random(1, 3)
    if what == 1 then
      text = text:sub(1, at - 1) .. string.char(random(0, 255)) .. text:sub(at + 1)
    elseif what == 2 then
      text = text:sub(1, at - 1) .. text:sub(at + random(1, 20))
    else
      text = text:sub(1, at + 30) .. text:sub(at)
    end
  end
  return text
end

local function try(text, name)
  local start = os.clock()
  local record, e = err.try(import.read, text, name)
  assert.is_true(record ~= nil or e.code == "format", name .. ": " .. tostring(e) .. "\n" .. tostring(e and e.traceback))
  assert.is_true(os.clock() - start < 5, name .. ": took too long")
end

local function torture(paths)
  for _, path in ipairs(paths) do
    local text = files.slurp(path)
    for _ = 1, 12 do try(text:sub(1, random(0, #text)), path) end
    for _ = 1, 4 do try(text:sub(random(1, #text)), path) end
    for _ = 1, 12 do try(damage(text), path) end
  end
end

describe("damaged topology texts", function()
  it("of the project's own fixtures give a record or a clean error", function()
    local paths = tree.files({ "spec/fixtures/topologies" }, { "%.txt$" })
    assert.is_true(#paths >= 25)
    torture(paths)
  end)

  it("of the shared corpus give a record or a clean error", function()
    local folder, why = see.corpus()
    if not folder then return pending(why) end
    torture(tree.files({ folder }, { "%.txt$" }))
  end)

  it("made to exhaust it end in bounded time", function()
    for _, piece in ipairs { "=", " ", "\n", "<", "<!--", "[", "GPU0\t", "GPU0 X NV1\n", "GPU 0: N ", "X ", "- ", "Link 1: 2 GB/s\n", "a: b\n", "|", "\t",
      "GPU9999 X\n", "NIC0: a\n", "Fabric\n State : Completed\n", "=== a1 ===\nGPU0 X\n" } do
      try(piece:rep(math.floor(60000 / #piece)), piece)
    end
  end)

  it("too large for a paste are refused before the whole is looked at", function()
    local row, start = "GPU0\t X \tNV4\tNODE\tSYS\t0-15\t0\n", os.clock()
    local record, e = err.try(import.read, "\tGPU0\tGPU1\tGPU2\tGPU3\n" .. row:rep(300000), "big.txt")
    assert.is_nil(record)
    assert.matches("larger than 2 MiB", e.message)
    assert.is_true(os.clock() - start < 0.5)
  end)

  it("with random bytes are refused", function()
    for _ = 1, 20 do
      local bytes = {}
      for i = 1, 3000 do bytes[i] = string.char(random(0, 255)) end
      assert.equal("format", see.refusal(table.concat(bytes)).code)
    end
  end)
end)
