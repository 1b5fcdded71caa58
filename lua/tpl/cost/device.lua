-- SPDX-License-Identifier: Apache-2.0
--- Say what one device can do: peak rates, bandwidth, memory, the cost of a launch. GPUs come from the table in gpus.lua,
--- CPU ranks (cpu.lua) from what a probe measured. Pure: the probe is an argument.
local cpu = require "tpl.cost.cpu"
local err = require "tpl.err"
local gpus = require "tpl.cost.gpus"

local M = {}

---@class tpl.cost.Device
---@field name string
---@field kind "gpu"|"mig"|"cpu"
---@field flops table<string, number>    FLOP/s (or integer operations) by type
---@field mem_gb_s number
---@field mem_bytes number?
---@field launch_us number               what one more op costs besides its bytes
---@field step_us number                 host work between two steps
---@field efficiency {mem: table<string, number>, flops: number}   shares of the peaks that good kernels reach
---@field roof number                    share of mem_gb_s that a copy reaches: the roofline
---@field auto string?                   type that a CPU multiplies in unless told otherwise
---@field cores integer?                 of a CPU that was probed
---@field read table?                    of a CPU: bandwidth by threads and bytes
---@field threads integer?               of a CPU rank
---@field barrier_us number?
---@field sm string?
---@field pcie {gen: integer, width: integer}?
---@field nvlinks integer?
---@field source "table"|"probe"|"record"

-- Bandwidth that matrix-vector products reach: fits of t = bytes / (share * peak) + layers * overhead to gpt-fast's published
-- tokens/s on A100-80GB (Llama-2-7B bf16, int8, int4 and 70B on 2, 4, 8 GPUs: 84 %, 72 %, 52 % of 2039 GB/s and 57 us a layer).
-- fp8 and mxfp4 lie between them; no figure was at hand.
local gpu_share = { f32 = 0.84, bf16 = 0.84, f16 = 0.84, fp8 = 0.78, i8 = 0.72, mxfp4 = 0.65, nvfp4 = 0.65, awq = 0.60, gptq = 0.60, int4 = 0.60 }
local GPU_FLOPS = 0.70 -- cuBLAS bf16 8192^3: 78 to 81 % of the peak of an H200, smaller products less (facts/perf.md 1b)
local GPU_ROOF = 0.90  -- copy on an H200: 4.3 of 4.8 TB/s (facts/perf.md 1a)
local GPU_STEP_US = 100

-- Cost of one more kernel by generation. sm80: 57 us a layer of about 11 kernels in the fit above; sm90: 1.3 us launch (facts/perf.md
-- 1a) and shorter ramps; others by analogy.
local function launch_us(sm)
  local major = tonumber(sm:match("^(%d+)"))
  if major >= 10 then return 3.5 elseif major == 9 then return 4 elseif sm == "8.9" then return 4.5 elseif major == 8 then return 5 end
  return 6
end

local made = {}

local function from_table(gpu)
  local d = made[gpu]
  if not d then
    d = { name = gpu.name, kind = "gpu", flops = {}, mem_gb_s = gpu.gb_s, mem_bytes = gpu.mem_mib and gpu.mem_mib * 2 ^ 20,
      launch_us = launch_us(gpu.sm), step_us = GPU_STEP_US, efficiency = { mem = gpu_share, flops = GPU_FLOPS }, roof = GPU_ROOF,
      sm = gpu.sm, pcie = gpu.pcie, nvlinks = gpu.nvlinks, source = "table" }
    for k, v in pairs(gpu.tflops) do d.flops[k] = v * 1e12 end
    d.flops.bf16 = d.flops.bf16 or d.flops.f16 -- a card without bf16 runs such a model in f16
    d.flops.f16 = d.flops.f16 or d.flops.bf16
    made[gpu] = d
  end
  return d
end

local function copy(t)
  local out = {}
  for k, v in pairs(t) do out[k] = v end
  return out
end

-- A slice: "3g.40gb" has 3 of 7 parts of the compute and, of 8 parts of memory and its bandwidth, as many as its memory takes.
local function slice(d, dev)
  local profile = dev.mig and dev.mig.profile or ""
  local parts, gb = profile:match("(%d+)g%.(%d+)gb")
  if not parts or not d.mem_bytes then return d end
  local out = copy(d)
  local share = math.min(1, math.ceil(8 * tonumber(gb) * 1e9 / (d.mem_bytes * 1.02)) / 8)
  out.kind, out.mem_gb_s, out.mem_bytes, out.flops = "mig", d.mem_gb_s * share, dev.mem_bytes or d.mem_bytes * share, {}
  for k, v in pairs(d.flops) do out.flops[k] = v * math.min(1, tonumber(parts) / 7) end
  return out
end

--- Give what a device can do.
---@param dev table               of a topology
---@param opts? {probe: tpl.cost.Probe?}   what was measured on this machine, for CPU devices
---@return tpl.cost.Device?
---@return tpl.Err?               a GPU whose name the table lacks
function M.of(dev, opts)
  if dev.kind == "cpu" then return cpu.device(opts and opts.probe) end
  local gpu = dev.name and gpus.find(dev.name)
  if not gpu then
    return nil, err.new { code = "unsupported", where = dev.uid,
      message = dev.name and ("no rates are known for the GPU %q"):format(dev.name) or "the topology does not say which GPU this is",
      hint = "name one that is close: --assume gpu=h100-sxm-80gb" }
  end
  local d = from_table(gpu)
  if dev.kind == "mig" then return slice(d, dev) end
  return d
end

--- Give what a device of a topology can do; a slice that does not say of which GPU it is has its parent's name.
---@param t table
---@param dev table
---@param opts? {probe: tpl.cost.Probe?}
---@return tpl.cost.Device?
---@return tpl.Err?
function M.at(t, dev, opts)
  local parent = dev.kind == "mig" and dev.mig and dev.mig.parent and t:dev(dev.mig.parent)
  if not parent or dev.name and gpus.find(dev.name) then return M.of(dev, opts) end
  local named = copy(dev)
  named.name = parent.name
  return M.of(named, opts)
end

return M
