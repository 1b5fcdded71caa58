-- SPDX-License-Identifier: Apache-2.0
--- Merge the links of two partial records (merge.lua): NVLink, path words, P2P and measurements each by their own rule, the worse side kept.
local pci = require("tpl.topo.import.pci")

local M = {}

local function pair_key(a, b) return a < b and a .. "\0" .. b or b .. "\0" .. a end

local function turned(link)
  local out = {}
  for key, v in pairs(link) do out[key] = v end
  out.a, out.b = link.b, link.a
  out.p2p, out.p2p_ba = link.p2p_ba, link.p2p
  out.gb_s, out.gb_s_ba, out.us, out.us_ba = link.gb_s, link.gb_s_ba, link.us, link.us_ba
  if link.p2p and not link.p2p_ba then out.p2p, out.p2p_ba = link.p2p, nil end -- absent means: the same both ways
  if link.gb_s_ba then out.gb_s, out.gb_s_ba = link.gb_s_ba, link.gb_s end
  if link.us_ba then out.us, out.us_ba = link.us_ba, link.us end
  return out
end

-- XML shows bridges, not what nvidia-smi makes of them: these words are one to it.
local class = { pix = 1, pxb = 1, phb = 2, node = 2, sys = 3 }

--- Merge two path words; `weak` says that one of them comes from a tree in XML, whose finer steps are less sure.
function M.path_word(had, word, what, say, weak)
  if not had or not word or had == word then return had or word end
  local worse = pci.worse(had, word)
  if weak and class[had] == class[word] then return worse end
  say("contradiction", ("%s: the path is %s and here %s: the longer one is kept"):format(what, had, word))
  return worse
end

local function merge_nvlink(own, link, what, say, own_silent, silent)
  local had, has = own.kind == "nvlink", link.kind == "nvlink"
  if had and has then
    if own.nvlinks and link.nvlinks and own.nvlinks ~= link.nvlinks then
      say("contradiction", ("%s: %d NVLinks and here %d: the fewer are kept"):format(what, own.nvlinks, link.nvlinks))
      own.nvlinks = math.min(own.nvlinks, link.nvlinks)
    end
    own.nvlinks = own.nvlinks or link.nvlinks
    if own.via_switch == nil then own.via_switch = link.via_switch end
  elseif had or has then
    local denied
    if had then denied = link.kind and not silent else denied = own.kind and not own_silent end
    if denied then
      say("contradiction", ("%s: one file has NVLink, another says there is none: it is not counted"):format(what))
      own.kind, own.nvlinks, own.via_switch = own.pcie or link.pcie or "sys", nil, nil
    elseif has then
      own.kind, own.nvlinks, own.via_switch = "nvlink", link.nvlinks, link.via_switch
      if own.source ~= "measured" then own.gb_s, own.us = link.gb_s, link.us end
    end
  end
end

local function merge_p2p(own, link, key, what, say)
  if not link[key] then return end
  own[key] = own[key] or {}
  for way, status in pairs(link[key]) do
    local had = own[key][way]
    if had and had ~= status then
      say("contradiction", ("%s: P2P %s is %s and here %s: '%s' is kept"):format(what, way, had, status, had == "ok" and status or had))
      if had == "ok" then own[key][way] = status end
    else
      own[key][way] = status
    end
  end
end

local figures = { gb_s = math.min, gb_s_ba = math.min, us = math.max, us_ba = math.max }

local function merge_figures(own, link, what, say)
  local function rank(l) return l.source == "measured" and 3 or l.source == "stated" and 2 or 1 end
  local r, s = rank(own), rank(link)
  for key, worse in pairs(figures) do
    local had, has = own[key], link[key]
    if has and (not had or s > r) then own[key] = has
    elseif has and s == r and had ~= has then
      if math.abs(had - has) > 0.1 * math.max(had, has) then
        say("contradiction", ("%s: %s is %.4g and here %.4g: the worse is kept"):format(what, key, had, has))
      end
      own[key] = worse(had, has)
    end
  end
  if s > r and (link.gb_s or link.us) then own.source = link.source end
  own.source = own.source or link.source
  if own.data_ok == false or link.data_ok == false then own.data_ok = false elseif own.data_ok == nil then own.data_ok = link.data_ok end
end

--- Merge the links of a part into `out`; uids of the part are changed by name_of.
function M.merge(out, part, name_of, say)
  local by_pair = {}
  for _, link in ipairs(out.links) do by_pair[pair_key(link.a, link.b)] = link end
  for _, link in ipairs(part.links) do
    link.a, link.b = name_of[link.a] or link.a, name_of[link.b] or link.b
    local own = by_pair[pair_key(link.a, link.b)]
    if not own then
      out.links[#out.links + 1], by_pair[pair_key(link.a, link.b)] = link, link
    else
      if own.a ~= link.a then link = turned(link) end
      local what = own.a .. " and " .. own.b
      own.pcie = M.path_word(own.pcie or own.kind ~= "nvlink" and class[own.kind or ""] and own.kind or nil,
        link.pcie or link.kind ~= "nvlink" and class[link.kind or ""] and link.kind or nil, what, say, part.weak or out.weak)
      merge_nvlink(own, link, what, say, out.silent, part.silent)
      if own.kind ~= "nvlink" and own.kind ~= "c2c" and own.kind ~= "net" then own.kind = own.pcie or own.kind or link.kind end
      merge_p2p(own, link, "p2p", what, say)
      merge_p2p(own, link, "p2p_ba", what, say)
      merge_figures(own, link, what, say)
      for key, v in pairs(link) do
        if own[key] == nil and key ~= "nvlinks" and key ~= "via_switch" then own[key] = v end
      end
    end
  end
end

--- Give links the new names of their devices, and the order of the device list (a before b).
function M.rename(out, new)
  local rank = {}
  for i, d in ipairs(out.devices) do rank[d.uid] = i end
  for i, link in ipairs(out.links) do
    link.a, link.b = new[link.a] or link.a, new[link.b] or link.b
    local ra, rb = rank[link.a], rank[link.b]
    if ra and rb and ra > rb then out.links[i] = turned(link) end
  end
  table.sort(out.links, function(x, y)
    local xa, ya, xb, yb = rank[x.a] or 0, rank[y.a] or 0, rank[x.b] or 0, rank[y.b] or 0
    if xa ~= ya then return xa < ya end
    return xb < yb
  end)
end

return M
