#!/usr/bin/env luajit
-- SPDX-License-Identifier: Apache-2.0
--- What loading costs: GB/s, peak resident memory over the bytes of the weights, bytes read over the bytes of the shards.
---
---     luajit spec/bench/load.lua MODEL.gguf [key=value..]
---
--- The file is read once before, so the page cache is warm. The time is that of opening the engine: shards read, packed and placed. Peak
--- resident memory is the whole process's; read bytes are those asked of the file system. Prints one JSON object.
package.path = "./lua/?.lua;./lua/?/init.lua;" .. package.path
package.cpath = "./build/lib/?.so;" .. package.cpath
local json = require("tpl.json")
local sys = require("tpl.core").sys

local function die(message)
  io.stderr:write("load: ", tostring(message), "\n")
  os.exit(1)
end

local function warm(path)
  local f, message = io.open(path, "rb")
  if not f then die(message) end
  while f:read(2 ^ 20) do end
  f:close()
end

if not arg[1] then die("usage: luajit spec/bench/load.lua MODEL.gguf [key=value..]") end
warm(arg[1])
collectgarbage()
local plan, e = require("tpl.plan.make").make(arg[1], { unpack(arg, 2) })
if not plan then die(e) end
local before, started = sys.rss(), sys.now_us()
local engine
engine, e = require("tpl.engine").open(plan, {})
if not engine then die(e) end
local seconds, peak, stats = (sys.now_us() - started) / 1e6, sys.rss_peak(), engine:stats()
engine:close()
print(json.encode {
  seconds = seconds, gb_s = stats.weight_bytes / 1e9 / seconds, weight_bytes = stats.weight_bytes, rss_peak_over_weights = peak / stats.weight_bytes,
  rss_growth_over_weights = (peak - before) / stats.weight_bytes, read_over_shards = stats.read_bytes / stats.weight_bytes,
})
