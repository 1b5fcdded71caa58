-- SPDX-License-Identifier: Apache-2.0
--- Read `nvidia-smi -L`: name and UUID of each GPU, and its MIG slices. The index in a line counts, not the position: there are gaps.
---
--- Contents: lines - fill

local M = {}

local gpu_line = "GPU (%d%d?%d?%d?):%s*(.-)%s*%(UUID:%s*(%S-)%)"
local mig_line = "MIG%s+(%S+)%s+Device%s+(%d+)%s*:%s*%(UUID:%s*(%S-)%)"

--- Read a line "GPU 0: NAME (UUID: GPU-..)".
---@return integer? index
---@return string? name
---@return string? uuid  nil when the line is cut in it
function M.gpu(text)
  local index, name, uuid = text:match(gpu_line)
  if not index then
    index, name = text:match("GPU (%d%d?%d?%d?):%s*(N?V?I?D?I?A?%s*%w[%w ]*%w)%s*%(U?U?I?D?:?[^)]*$")
  end
  if not index then return nil end
  return tonumber(index), name ~= "" and name or nil, uuid
end

local function add_gpu(draft, host, line)
  local index, name, uuid = M.gpu(line.text)
  if not index then return nil end
  local device = host:device(index)
  device.name = device.name or name
  host:identify(device, uuid, line.no)
  if not uuid then draft:doubt(line.no, "line_cut", ("GPU%d: the line ends before its UUID does"):format(index)) end
  return device
end

-- A slice belongs to the GPU of the last line before it.
local function add_slice(draft, host, gpu, line)
  local profile, index, uuid = line.text:match(mig_line)
  if not profile then
    if line.text:find("^%s*MIG%s+%S+%s+Device") then draft:doubt(line.no, "line_cut", "a MIG line ends before its UUID does: left out") end
    return
  end
  if not gpu then
    draft:doubt(line.no, "mig_parent_unknown", "a MIG slice without the line of its GPU: left out")
    return
  end
  gpu.mig = gpu.mig or {}
  gpu.mig.mode = "on"
  if host:find("uuid", uuid) then return end
  local slice = host:device(nil, "mig")
  slice.index, slice.parent, slice.mig = tonumber(index), gpu, { profile = profile }
  slice.name = gpu.name
  host:identify(slice, uuid, line.no)
end

--- Write the GPUs and slices of the lines into a draft.
---@param draft tpl.topo.Draft
---@param host table               the host that the lines speak of
---@param lines tpl.topo.Line[]
function M.fill(draft, host, lines)
  local gpu
  for _, line in ipairs(lines) do
    local device = add_gpu(draft, host, line)
    if device then
      draft:found("smi-list")
      gpu = device
    elseif line.text:find("MIG", 1, true) then
      add_slice(draft, host, gpu, line)
    end
  end
end

return M
