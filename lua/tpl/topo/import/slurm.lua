-- SPDX-License-Identifier: Apache-2.0
--- Read `slurmd -G`: the generic resources that Slurm found, with `Links=` (-1 for itself, else the number of NVLinks to each GPU in
--- the order of the lines) and `Cores=`. Slurm's cores are its own numbers of cores, so they split GPUs into groups but are no CPU list
--- unless there is one thread per core.
---
--- Contents: one line - links - fill

local M = {}

local function field(text, name)
  local value = text:match("%f[%w]" .. name .. "=(%S+)")
  return value ~= "(null)" and value or nil
end

local function read_gres(text)
  if not text:find("Gres Name=", 1, true) then return nil end
  return { name = field(text, "Name"), type = field(text, "Type"), count = field(text, "Count"), index = field(text, "Index"),
    file = field(text, "File"),
    cores = field(text, "Cores"), links = field(text, "Links"), core_count = field(text, "CoreCnt") }
end

local function add_gpu(host, gres)
  local index = tonumber(gres.index) or tonumber(gres.file and gres.file:match("nvidia(%d+)$"))
  if not index then return nil end
  local device = host:device(index)
  device.name = device.name or gres.type
  device.cpus = device.cpus or (gres.cores and gres.cores:find("^%d[%d,%-]*$") and gres.cores) or nil
  return device
end

local function add_links(draft, host, gpus)
  for i, g in ipairs(gpus) do
    local k = 0
    for word in (g.links or ""):gmatch("[^,]+") do
      k = k + 1
      local n, other = tonumber(word), gpus[k]
      if not n then
        draft:doubt(g.no, "links_unreadable", ("GPU%d: Links=%s is not a list of numbers"):format(g.device.index, g.links))
        break
      end
      if n == -1 and k ~= i then
        draft:doubt(g.no, "links_shifted", ("GPU%d: Links=%s has its -1 at place %d, not %d: not used"):format(g.device.index, g.links, k, i))
        break
      end
      if n > 0 and other and other ~= g then
        local link = host:link(g.device, other.device)
        if link.nvlinks and link.nvlinks ~= n then
          draft:doubt(g.no, "asymmetric", ("%s to %s has %d links one way and %d the other: the smaller number counts"):format(
            draft.label(g.device), draft.label(other.device), link.nvlinks, n))
          n = math.min(n, link.nvlinks)
        end
        link.kind, link.nvlinks = "nvlink", n
      elseif n > 0 and not other then
        draft:doubt(g.no, "rows_missing", ("GPU%d has links to a GPU that has no line"):format(g.device.index))
      end
    end
  end
end

--- Write the GPUs of the lines into a draft.
---@param draft tpl.topo.Draft
---@param host table               the host that the lines speak of
---@param lines tpl.topo.Line[]
function M.fill(draft, host, lines)
  local gpus, memory = {}, nil
  for _, line in ipairs(lines) do
    local gres = read_gres(line.text)
    if gres and gres.name == "gpu" then
      local device = add_gpu(host, gres)
      if device then
        gpus[#gpus + 1] = { device = device, links = gres.links, no = line.no }
      else
        draft:doubt(line.no, "line_cut", "a GPU without Index= or File=: left out")
      end
    elseif gres and gres.name == "VramPerGpu" then
      memory = tonumber(gres.count)
    end
  end
  if #gpus == 0 then return end
  draft:found("slurm")
  for _, g in ipairs(gpus) do g.device.mem_bytes = g.device.mem_bytes or memory end
  add_links(draft, host, gpus)
end

return M
