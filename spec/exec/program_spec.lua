-- SPDX-License-Identifier: Apache-2.0
-- The program text: C prints what it read byte for byte, and refuses what is damaged, naming the line. The sample is written by hand.
local core = require "tpl.core"

local sample = table.concat({
  "tpl-program 1", "stage 0 decode,mixed", "ranks 0 2", "caps tok 8 seq 2 out 2 vocab 64", "arena 4096",
  "table 0 rope 2 1 0.0099999999999999985", "index 0 0:32", "index 1 32:32", "index 2 0:16", "k 0 0 1", "group 0 tp 0,1",
  "value 0 embed f32 tok/1 16 @0", "value 1 x f32 tok/1 16 @512", "weight 0 embed_tokens matrix token_embd.weight q8_0 64 16 $0 2",
  "state 0 blk.0.kv 0 1 4",
  "op embed embed -1 - - out=0 w=0 imm=$0,0 src=models/llama.lua:9", "op r all_reduce -1 embed.out - out=1 in=0 group=0 cseq=0",
  "op n norm 0 embed.out b out=0 in=1 w=0 imm=1.0000000000000001e-05",
}, "\n") .. "\n"

local function parse(text) return core.engine.roundtrip(text) end
local function lines_of(text)
  local out = {}
  for line in text:gmatch("[^\n]+") do out[#out + 1] = line end
  return out
end

describe("exec program", function()
  it("prints what it read, byte for byte", function() assert.equal(sample, parse(sample)) end)

  it("refuses another version", function()
    local text, message, code, where = parse((sample:gsub("tpl%-program 1", "tpl-program 2")))
    assert.is_nil(text)
    assert.equal("format", code)
    assert.matches("unknown program version", message)
    assert.equal("program:1", where)
  end)

  local damage = {
    ["an op that is not known"] = { "op n norm", "op n morn", "unknown op" },
    ["a value outside the arena"] = { "@512", "@4096", "outside the arena" },
    ["an offset that is not aligned"] = { "@512", "@100", "bad offset" },
    ["an id that is not defined"] = { "in=1 w=0", "in=7 w=0", "bad op field" },
    ["a collective without a group"] = { " group=0 cseq=0", "", "needs group" },
    ["a rank of another stage in a group"] = { "tp 0,1", "tp 0,2", "bad rank in a group" },
    ["an index list beyond the tensor"] = { "index 1 32:32", "index 1 32:33", "exceeds the size" },
    ["too few immediates"] = { "imm=$0,0", "imm=$0", "number of immediates" },
    ["a rank constant that is not defined"] = { "imm=$0,0", "imm=$4,0", "bad op field" },
    ["a storage type that is not known"] = { "q8_0", "q9_9", "unknown dtype" },
    ["a negative range"] = { "index 2 0:16", "index 2 0:-1", "bad range" },
    ["a number that overflows"] = { "0:32", "0:99999999999999999999", "bad range" },
    ["a key that is not known"] = { "src=models", "sorc=models", "bad op field" },
  }
  for what, d in pairs(damage) do
    it("refuses " .. what, function()
      local at = assert(sample:find(d[1], 1, true))
      local text, message = parse(sample:sub(1, at - 1) .. d[2] .. sample:sub(at + #d[1]))
      assert.is_nil(text)
      assert.matches(d[3], message, 1, true)
    end)
  end

  it("never dies of a text that is cut off, or of a line that is missing or doubled", function()
    for i = 0, #sample - 1 do parse(sample:sub(1, i)) end
    local lines = lines_of(sample)
    for i = 1, #lines do
      local without, doubled = {}, {}
      for k, line in ipairs(lines) do
        if k ~= i then without[#without + 1] = line end
        doubled[#doubled + 1] = line
        if k == i then doubled[#doubled + 1] = line end
      end
      parse(table.concat(without, "\n") .. "\n")
      parse(table.concat(doubled, "\n") .. "\n")
    end
  end)
end)
