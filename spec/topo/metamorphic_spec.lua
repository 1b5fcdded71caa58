-- SPDX-License-Identifier: Apache-2.0
--- What must hold for every machine, whatever the right answer is: choices follow devices and not indices, a worse link is no reason to choose it, and
-- a device that was not chosen may go. Run over the whole corpus and the project's own fixtures.
local answers = require("spec.topo.corpus_answers")
local corpus = require("spec.topo.corpus_support")
local groups = require("tpl.topo.groups")
local sys = require("tpl.core").sys
local topo = require("tpl.topo")
local util = require("tpl.util")

-- A generator of its own, so that every run draws the same.
local state

local function draw(n)
  state = (state * 1103515245 + 12345) % 2 ^ 31
  return math.floor(state / 65536) % n + 1
end

local function shuffled(list)
  local out = { unpack(list) }
  for i = #out, 2, -1 do
    local j = draw(i)
    out[i], out[j] = out[j], out[i]
  end
  return out
end

local function copy(v)
  if type(v) ~= "table" then return v end
  local out = {}
  for key, x in pairs(v) do out[key] = copy(x) end
  return out
end

-- The facts of a topology, without what was derived from them.
local function facts(t)
  return { source = copy(t.source), hosts = copy(t.hosts), networks = copy(t.networks), devices = copy(t.devices), links = copy(t.links), nics = copy(t.nics) }
end

local function finished(record) return assert(topo.from_record(record)) end

local function set(group) return group and corpus.set(group) or "none" end

local function sets(list)
  local out = {}
  for i, group in ipairs(list) do out[i] = set(group) end
  return out
end

local sizes = { 1, 2, 3, 4, 8 }

local swap = { p2p = "p2p_ba", gb_s = "gb_s_ba", us = "us_ba" }

local function turned(link)
  local out = copy(link)
  out.a, out.b = link.b, link.a
  for there, back in pairs(swap) do
    if link[back] ~= nil then out[there], out[back] = link[back], link[there] end
  end
  return out
end

--- The same machine, listed in another order: devices renumbered, links turned round, NICs and hosts shuffled.
local function permuted(t)
  local record = facts(t)
  record.devices, record.nics, record.hosts = shuffled(record.devices), shuffled(record.nics), shuffled(record.hosts)
  local next_index = {}
  for _, d in ipairs(record.devices) do
    local key = d.host .. d.kind
    d.index = next_index[key] or 0
    next_index[key] = d.index + 1
  end
  record.links = shuffled(record.links)
  for i, link in ipairs(record.links) do
    if draw(2) == 1 then record.links[i] = turned(link) end
  end
  return finished(record)
end

local worse_word = { pix = "pxb", pxb = "phb", phb = "node", node = "sys" }

-- Ways to make a link worse: fewer NVLinks, none, a longer way, refused peer access, nothing known.
local spoil = {
  function(link)
    if not link.nvlinks or link.nvlinks < 2 then return false end
    link.nvlinks = link.nvlinks - 1
  end,
  function(link)
    if link.kind ~= "nvlink" then return false end
    link.kind, link.nvlinks, link.via_switch, link.pcie = "sys", nil, nil, "sys"
  end,
  function(link)
    if not worse_word[link.pcie or ""] then return false end
    if link.kind == link.pcie then link.kind = worse_word[link.pcie] end
    link.pcie = worse_word[link.pcie]
  end,
  function(link) link.p2p = { read = "ns", write = "ns" } end,
  function(link) link.data_ok = false end,
  function(link)
    if link.source ~= "measured" then return false end
    link.gb_s = link.gb_s / 4
  end,
}

local function contains_both(group, a, b) return group ~= nil and util.has(group, a) and util.has(group, b) end

local function check_worse(t)
  for _ = 1, 12 do
    if not t.links[1] then return end
    local at, how = draw(#t.links), spoil[draw(#spoil)]
    local link = t.links[at]
    local record = facts(t)
    if how(record.links[at]) ~= false then
      local after = finished(record)
      for _, n in ipairs { 2, 3, 4 } do
        if not contains_both(groups.best(t, nil, n), link.a, link.b) then
          local now = groups.best(after, nil, n)
          assert.is_false(contains_both(now, link.a, link.b), ("worse %s-%s became part of the best %d: %s"):format(link.a, link.b, n, set(now)))
        end
      end
    end
  end
end

--- Equal by points 2 to 5 of the rule.
local function equally_good(t, a, b)
  local fa, fb = groups.describe(t, a), groups.describe(t, b)
  for _, key in ipairs { "models", "joined", "weakest", "total", "worst", "sockets", "nodes" } do
    if fa[key] ~= fb[key] then return false end
  end
  return true
end

local function without(t, uid)
  local record = facts(t)
  local function keep(list, wanted)
    local out = {}
    for _, x in ipairs(list) do
      if wanted(x) then out[#out + 1] = x end
    end
    return out
  end
  record.devices = keep(record.devices, function(d) return d.uid ~= uid and not (d.mig and d.mig.parent == uid) end)
  record.links = keep(record.links, function(link) return link.a ~= uid and link.b ~= uid end)
  for _, nic in ipairs(record.nics) do
    if nic.to then nic.to[uid] = nil end
  end
  return finished(record)
end

local function check_removal(t)
  for _, n in ipairs(sizes) do
    local chosen = groups.best(t, nil, n)
    if chosen then
      for _, uid in ipairs(shuffled(groups.candidates(t))) do
        if not util.has(chosen, uid) then
          local after = without(t, uid)
          local now = groups.best(after, nil, n)
          assert.is_true(set(now) == set(chosen) or equally_good(after, now, chosen),
            ("without %s the best %d changed from %s to %s"):format(uid, n, set(chosen), set(now)))
          break
        end
      end
    end
  end
end

local function check(t)
  state = 4711
  for _ = 1, 3 do
    local other = permuted(t)
    for _, n in ipairs(sizes) do
      assert.equal(set(groups.best(t, nil, n)), set(groups.best(other, nil, n)))
      assert.equal(set(groups.best(t, nil, n, { nics = true })), set(groups.best(other, nil, n, { nics = true })))
    end
    assert.same(sets(t.suggest.tp2), sets(other.suggest.tp2))
    assert.same(sets(t.suggest.tp4), sets(other.suggest.tp4))
    assert.equal(t.suggest.advice, other.suggest.advice)
  end
  check_worse(t)
  check_removal(t)
end

describe("on every machine, the choice follows the devices, not their order, and fears no worse link or missing stranger:", function()
  local fixtures = "spec/fixtures/topologies"
  for _, name in ipairs(sys.list(fixtures)) do
    if not name:find("negative", 1, true) and not name:find("cluster", 1, true) and not name:find("README", 1, true) then
      local t = topo.read(fixtures .. "/" .. name)
      if t then it(name, function() check(t) end) end
    end
  end

  if not corpus.folder() then
    pending("the corpus: the shared folder is not there (TPL_SHARED)")
    return
  end
  for _, name in ipairs(corpus.files()) do
    if answers[name] and not answers[name].refused then
      it(name, function() check(assert(topo.read(corpus.folder() .. "/" .. name))) end)
    end
  end
end)
