#!/usr/bin/env luajit
-- SPDX-License-Identifier: Apache-2.0
--- Hold what the cost model predicts for this machine against what tpl takes on it; see spec/bench/README.md, "Prediction".
---
---     luajit spec/bench/predict.lua measure ROUNDS FILE NAME=MODEL.gguf..    adds lines to FILE
---     luajit spec/bench/predict.lua show FILE..                                       the table
---     luajit spec/bench/predict.lua fit FILE..                                        the constants of the CPU model, from calibration cases
package.path = "./lua/?.lua;./lua/?/init.lua;./spec/bench/predict/?.lua;" .. package.path
package.cpath = "./build/lib/?.so;" .. package.cpath

local json = require("tpl.json")
local rates = require("tpl.rates")
local sys = require("tpl.core").sys

local function die(message)
  io.stderr:write("predict: ", tostring(message), "\n")
  os.exit(1)
end

-- -- Measuring ---------------------------------------------------------------------------------------------------------

local function probe()
  return assert(rates.measure { seconds = 0.25, curve = true })
end

local function models_of(words)
  local out = {}
  for _, w in ipairs(words) do
    local name, path = w:match("^(.-)=(.+)$")
    if not name then die("expected NAME=MODEL.gguf, got " .. w) end
    out[#out + 1] = { name = name, path = path }
  end
  return out
end

--- Probe, case, probe, case ..: each case lies between two probes.
local function measure(rounds, file, words)
  local list = require("cases").list(models_of(words), sys.cpus())
  local run = require("measure").run
  local out = assert(io.open(file, "a"))
  for round = 1, rounds do
    local before = probe()
    for _, case in ipairs(list) do
      local got = run(case)
      collectgarbage()
      local after = probe()
      out:write(json.encode { round = round, case = case, before = before, after = after, got = got }, "\n")
      out:flush()
      io.stderr:write(("%d %s: ttft %.1f ms, itl %.2f ms, foreign load %.2f\n"):format(round, case.name, got.ttft_us / 1e3, got.itl_us / 1e3,
        got.foreign))
      before = after
    end
  end
  out:close()
end

-- -- Ways in -----------------------------------------------------------------------------------------------------------

local function read(files)
  local out = {}
  for _, file in ipairs(files) do
    for line in io.lines(file) do out[#out + 1] = assert(json.decode(line)) end
  end
  return out
end

local command = table.remove(arg, 1)
if command == "measure" and tonumber(arg[1]) and arg[2] and arg[3] then
  measure(tonumber(arg[1]), arg[2], { unpack(arg, 3) })
elseif command == "show" and arg[1] then
  os.exit(require("show").run(read(arg)) and 0 or 1)
elseif command == "fit" and arg[1] then
  require("fitting").run(read(arg))
else
  die("usage: predict.lua measure ROUNDS FILE NAME=MODEL.. | show FILE.. | fit FILE..")
end
