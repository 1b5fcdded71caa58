-- SPDX-License-Identifier: Apache-2.0
--- Know the words that stand in the cells of `nvidia-smi topo` tables, how they rank, and what a label looks like.
--- Legend of the words: the tool's own legend; SOC is the name that drivers up to about R375 used for SYS.
---
--- Contents: cells (M.cell, M.split) - ranking (M.worse, M.show) - labels (M.label, M.unglue)
local M = {}

local pcie = { PIX = "pix", PXB = "pxb", PHB = "phb", NODE = "node", SYS = "sys", SOC = "sys" }
local p2p = { OK = "ok", CNS = "cns", GNS = "gns", TNS = "tns", NS = "ns", DR = "dr", U = "u" }
local blank = { ["N/A"] = true, ["NA"] = true, ["-"] = true, ["--"] = true, ["?"] = true, ["???"] = true, ["ERR"] = true, ["UNKNOWN"] = true }

-- -- Cells -----------------------------------------------------------------------------------------------------------

---@class tpl.topo.Cell
---@field type "self"|"path"|"p2p"|"unknown"
---@field kind string?     "nvlink", "pix", .. for a path; "ok", "gns", .. for a P2P status
---@field nvlinks integer? number of bonded NVLinks, nil for "NV#"

--- Read one word as a cell; nil when it is none. Case does not matter for paths, nor do footnote marks and markup around a word.
---@param token string
---@return tpl.topo.Cell?
function M.cell(token)
  local word = token:upper()
  if blank[word] then return { type = "unknown" } end
  word = word:gsub("[%*`,;]+$", ""):gsub("^[%*`]+", "")
  if word == "X" then return { type = "self" } end
  if pcie[word] then return { type = "path", kind = pcie[word] } end
  local n = word:match("^NV(%d%d?)$") or (word == "NV#" and "")
  if n then
    local count = tonumber(n)
    if count == 0 then return { type = "unknown" } end
    return { type = "path", kind = "nvlink", nvlinks = count }
  end
  if p2p[token] then return { type = "p2p", kind = p2p[token] } end
  return nil
end

--- Take apart a token of several cells that lost the blanks between them ("NV12NV12", "SYSPIX", "PHB0-15").
---@param token string
---@return string[]?  two or more words, the last one may be a CPU list
function M.split(token)
  local rest, out = token:upper(), {}
  if #rest > 200 or not rest:find("^[XNPS]") then return nil end
  while rest ~= "" do
    local word = rest:match("^NV%d%d?%f[%D]") or rest:match("^NODE") or rest:match("^SYS") or rest:match("^SOC")
      or rest:match("^P[IX][XB]") or rest:match("^PHB") or rest:match("^X")
    if not word then
      if #out > 0 and out[#out]:sub(1, 2) ~= "NV" and rest:find("^%d[%d,%-]*$") then
        out[#out + 1] = rest
        return out
      end
      return nil
    end
    out[#out + 1] = word
    rest = rest:sub(#word + 1)
  end
  return #out > 1 and out or nil
end

-- -- Ranking ---------------------------------------------------------------------------------------------------------

local order = { nvlink = 1, pix = 2, pxb = 3, phb = 4, node = 5, sys = 6 }

--- Give the worse of two paths: the longer way, or the fewer NVLinks; an uncounted NVLink path is worse than a counted one.
---@param a tpl.topo.Cell
---@param b tpl.topo.Cell
---@return tpl.topo.Cell
function M.worse(a, b)
  if order[a.kind] ~= order[b.kind] then return order[a.kind] > order[b.kind] and a or b end
  if a.kind == "nvlink" and (a.nvlinks or 0) > (b.nvlinks or 0) then return b end
  return a
end

--- Say whether two cells state the same.
function M.same(a, b) return a.kind == b.kind and a.nvlinks == b.nvlinks end

--- Give a cell as the tool writes it.
function M.show(cell)
  if cell.kind == "nvlink" then return "NV" .. (cell.nvlinks or "#") end
  return (cell.kind or "?"):upper()
end

-- -- Labels ----------------------------------------------------------------------------------------------------------

-- Names of network devices where they do not end in a digit, or start with a capital.
local nic_prefix = {
  "^mlx", "^ib", "^roce", "^rdma", "^efa", "^bnxt", "^irdma", "^hfi", "^qedr", "^eth", "^ens", "^enp", "^erdma", "^bond", "^hsn", "^cxi",
}

local function is_nic_name(token)
  for _, p in ipairs(nic_prefix) do
    if token:find(p) then return true end
  end
  return token:find("^NIC%d+$") ~= nil or token:find("^DPU%d+$") ~= nil or token:find("^%l[%w_%.%-]*%d$") ~= nil
end

---@class tpl.topo.Label
---@field kind "gpu"|"nic"|"other"
---@field name string     "GPU3", "NIC0", "mlx5_1"
---@field index integer?  of "GPU3" and "NIC3"

--- Read a word as the label of a row or column; nil when it is none.
---@param token string
---@return tpl.topo.Label?
function M.label(token)
  token = token:gsub("[:%]]$", ""):gsub("^%[", "")
  local n = token:match("^[Gg][Pp][Uu][_%-]?(%d+)$")
  if n then return #n <= 4 and { kind = "gpu", name = "GPU" .. tonumber(n), index = tonumber(n) } or nil end
  if is_nic_name(token) then
    return #token <= 64 and { kind = "nic", name = token, index = tonumber(token:match("^NIC(%d%d?%d?%d?)$")) } or nil
  end
  if token:find("^NV%d+$") then return nil end
  if token:find("^%u[%w_]*%d$") and #token <= 16 and not token:find("^P2P") then return { kind = "other", name = token } end
  return nil
end

--- Put blanks between labels that lost them ("GPU0GPU1", "NIC11NIC12", "GPU7mlx5_0", "NIC3CPU Affinity").
---@param text string  a header line
---@return string text
---@return table<string,boolean> glued  names that stood glued to another
function M.unglue(text)
  local glued = {}
  local function part(run)
    local spaced = run:gsub("(%w)(GPU%d)", "%1 %2"):gsub("(%w)(GPU%d)", "%1 %2"):gsub("(%w)(NIC%d)", "%1 %2"):gsub("(%w)(NIC%d)", "%1 %2")
      :gsub("(%w)(mlx%d+_)", "%1 %2"):gsub("(%w)(mlx%d+_)", "%1 %2"):gsub("(%d)(CPU)$", "%1 %2"):gsub("(%d)(NUMA)$", "%1 %2")
    if spaced ~= run then
      for name in spaced:gmatch("%S+") do
        if M.label(name) then glued[M.label(name).name] = true end
      end
    end
    return spaced
  end
  return (text:gsub("%S+", part)), glued
end

return M
