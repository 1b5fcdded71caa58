-- SPDX-License-Identifier: Apache-2.0
-- The same table in the clothes that terminals, chats and logs give it says the same: each own and shared topo -m text is dressed in
-- every way, and the record must not change. The oracle is the plain text's record, which corpus_text_spec and matrix_spec check.
local files = require("spec.support.files")
local import = require("tpl.topo.import")
local see = require("spec.topo.import.support")
local tree = require("spec.support.tree")

local function prefixed(prefix)
  return function(text) return prefix .. text:gsub("\n", "\n" .. prefix:gsub("%%", "%%%%")) end
end

local function expanded(text)
  return (text:gsub("[^\n]*", function(line)
    local out, col = {}, 0
    for piece, tab in line:gmatch("([^\t]*)(\t?)") do
      local pad = tab ~= "" and 8 - (col + #piece) % 8 or 0
      out[#out + 1] = piece .. (" "):rep(pad)
      col = col + #piece + pad
    end
    return table.concat(out)
  end))
end

local clothes = {
  ["CRLF"] = function(text) return (text:gsub("\n", "\r\n")) end,
  ["tabs as columns"] = expanded,
  ["tabs as four blanks"] = function(text) return (text:gsub("\t", "    ")) end,
  ["tabs doubled"] = function(text) return (text:gsub("\t", "\t\t")) end,
  ["one blank"] = function(text) return (expanded(text):gsub(" +", " ")) end,
  ["no-break spaces"] = function(text) return (expanded(text):gsub(" ", "\194\160")) end,
  ["container log"] = prefixed("2026-01-02T03:04:05.6Z stdout F "),
  ["journal"] = prefixed("Jan 02 03:04:05 n7 run.sh[12]: "),
  ["kubectl prefix"] = prefixed("[pod/a-b/c] "),
  ["pdsh"] = prefixed("n07: "),
  ["quoted"] = prefixed("> "),
  ["indented"] = prefixed("    "),
  ["code fence"] = function(text) return "My box, GPU0 is the first:\n```\n" .. text .. "\n```\n" end,
  ["blanks at line ends lost"] = function(text) return (text:gsub("[ \t]+\n", "\n")) end,
  ["empty lines between"] = function(text) return (text:gsub("\n", "\n\n")) end,
}

local function compare(paths)
  for _, path in ipairs(paths) do
    local text = files.slurp(path)
    local plain = import.read(text, "plain")
    for name, dress in pairs(clothes) do
      local r = import.read(dress(text), "dressed")
      local where = path .. ", " .. name
      for _, view in ipairs { "links", "islands", "nearest" } do assert.equal(see[view](plain), see[view](r), where .. ", " .. view) end
      for _, field in ipairs { "index", "numa", "cpus" } do assert.equal(see.column(plain, field), see.column(r, field), where .. ", " .. field) end
    end
  end
end

describe("topo -m in other clothes", function()
  it("says the same, own fixtures", function()
    local paths = {}
    for _, path in ipairs(tree.files({ "spec/fixtures/topologies" }, { "%.topo%.txt$" })) do
      -- Texts whose subject is a prefix, a host name, a cut, or the lines themselves.
      if not path:find("prefix") and not path:find("hosts") and not path:find("cut") and not path:find("wrapped") then paths[#paths + 1] = path end
    end
    assert.is_true(#paths >= 10)
    compare(paths)
  end)

  it("says the same, shared corpus", function()
    local folder, why = see.corpus()
    if not folder then return pending(why) end
    compare(tree.files({ folder }, { "%.topo%.txt$" }))
  end)
end)
