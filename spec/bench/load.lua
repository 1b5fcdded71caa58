#!/usr/bin/env luajit
-- SPDX-License-Identifier: Apache-2.0
--- What loading costs: seconds, growth of resident memory over the bytes of the weights, bytes read over the bytes of the shards.
---
---     luajit spec/bench/load.lua MODEL.gguf [key=value..]
---
--- Resident memory is the peak while loading less what the process held before it; read bytes are those asked of the file system.
package.path = "./lua/?.lua;./lua/?/init.lua;" .. package.path
package.cpath = "./build/lib/?.so;" .. package.cpath
local sys = require("tpl.core").sys

local function die(message)
  io.stderr:write("load: ", tostring(message), "\n")
  os.exit(1)
end

if not arg[1] then die("usage: luajit spec/bench/load.lua MODEL.gguf [key=value..]") end
local plan, e = require("tpl.plan.make").make(arg[1], { unpack(arg, 2) })
if not plan then die(e) end
local before = sys.rss()
local engine
engine, e = require("tpl.engine").open(plan, {})
if not engine then die(e) end
local peak, stats = sys.rss_peak(), engine:stats()
engine:close()
print(("load %.2f s, weights %.1f MB, RSS +%.3fx of the weights, read %.3fx of the shards"):format(stats.load_us / 1e6,
  stats.weight_bytes / 1e6, (peak - before) / stats.weight_bytes, stats.read_bytes / stats.weight_bytes))
