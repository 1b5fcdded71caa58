-- SPDX-License-Identifier: Apache-2.0
--- Read every file of the topology corpus and compare with its worked answers (corpus_answers.lua).
local answers = require("spec.topo.corpus_answers")
local groups = require("tpl.topo.groups")
local pair = require("tpl.topo.pair")
local support = require("spec.topo.corpus_support")
local topo = require("tpl.topo")
local util = require("tpl.util")

local folder = support.folder()

local function has(list, value, what)
  for _, x in ipairs(list) do
    if x == value then return end
  end
  error(("%s is {%s}, expected one of {%s}"):format(what, tostring(value), table.concat(list, "} {")), 0)
end

local function gpus_of(t)
  local out = {}
  for _, d in ipairs(t.devices) do
    if d.kind == "gpu" then out[#out + 1] = d end
  end
  return out
end

local function check_pairs(t, a)
  local got = t.suggest.tp2
  if a.first then has(support.named_sets(t, a.first), got[1] and support.set(got[1]), "the best pair") end
  if a.pairs then assert.same(support.named_sets(t, a.pairs), support.sets(got), "pairs") end
  if a.in_order then
    for i, names in ipairs(a.pairs) do assert.equal(support.named_set(t, names), support.set(got[i]), "pair " .. i) end
  end
  for _, names in ipairs(a.has_pairs or {}) do has(support.sets(got), support.named_set(t, names), "a pair") end
  for _, got_pair in ipairs(a.inside and got or {}) do
    local found = false
    for _, names in ipairs(a.inside) do
      local all = true
      for _, uid in ipairs(got_pair) do
        local here = false
        for _, name in ipairs(names) do here = here or support.uid(t, name) == uid end
        all = all and here
      end
      found = found or all
    end
    assert.is_true(found, "the pair " .. support.set(got_pair) .. " crosses")
  end
end

local function check_quads(t, a)
  if not a.quads then return end
  if not a.quads[1] then return assert.same({}, t.suggest.tp4) end
  has(support.named_sets(t, a.quads), t.suggest.tp4[1] and support.set(t.suggest.tp4[1]), "the best group of four")
end

local function check_nic_aware(t, a)
  if a.first_nic then has(support.named_sets(t, a.first_nic), support.set(groups.best(t, nil, 2, { nics = true })), "the best pair with NICs") end
  if a.quads_nic then has(support.named_sets(t, a.quads_nic), support.set(groups.best(t, nil, 4, { nics = true })), "the best four with NICs") end
  if a.pairs_nic then assert.same(support.named_sets(t, a.pairs_nic), support.sets(groups.matching(t, nil, { nics = true }))) end
end

local function check_islands(t, a)
  if not a.islands then return end
  local got = {}
  for i, island in ipairs(t.islands) do got[i] = island.devices end
  assert.same(support.named_sets(t, a.islands), support.sets(got), "islands")
  for _, island in ipairs(t.islands) do
    if a.full ~= nil then assert.equal(a.full, island.full) end
    if a.not_full then assert.is_not_true(island.full) end
  end
end

local function check_numa(t, a)
  if a.numa then
    local got, want = {}, {}
    for _, d in ipairs(gpus_of(t)) do
      if d.numa then
        got[d.numa] = got[d.numa] or {}
        table.insert(got[d.numa], d.uid)
      end
    end
    for id, names in pairs(a.numa) do want[id] = support.named_set(t, names) end
    for id, uids in pairs(got) do got[id] = support.set(uids) end
    assert.same(want, got, "NUMA nodes")
  end
  if a.split then
    local got = {}
    for _, group in ipairs(t:groups("socket")) do got[#got + 1] = group end
    assert.same(support.named_sets(t, a.split), support.sets(got), "sockets")
  end
end

local function nic_called(t, name)
  for _, nic in ipairs(t.nics) do
    if nic.name == name then return nic end
  end
end

local function check_nics(t, a)
  for name, wanted in pairs(a.nics or {}) do
    local uid, near = support.uid(t, name), {}
    for _, nic in ipairs(t.nics) do
      if util.has(nic.near, uid) then near[#near + 1] = (nic.name or "") .. " " .. (nic.device or "") .. " " .. (nic.pci or "") end
    end
    if not wanted[1] then assert.same({}, near, tostring(name)) end
    for _, text in ipairs(wanted) do
      local found = false
      for _, it_is in ipairs(near) do found = found or (it_is .. " "):find(text, 1, true) ~= nil end
      assert.is_true(found, ("%s is not near to %s: %s"):format(text, tostring(name), table.concat(near, ", ")))
    end
  end
  for _, name in ipairs(a.far_nics or {}) do assert.same({}, nic_called(t, name).near) end
  for name, device in pairs(a.names or {}) do assert.equal(device or nil, assert(nic_called(t, name)).device) end
  if a.word then assert.equal(a.word[3], nic_called(t, a.word[1]).to[support.uid(t, a.word[2])]) end
end

local function check_devices(t, a)
  if a.gpus then assert.equal(a.gpus, #gpus_of(t)) end
  for name, code in pairs(a.unusable or {}) do
    local d = t:dev(support.uid(t, name))
    assert.is_false(d.usable)
    assert.equal(code, d.why_not[1].code)
  end
  for _, name in ipairs(a.usable or {}) do assert.is_true(t:dev(support.uid(t, name)).usable) end
end

local function check_links(t, a)
  for _, expected in ipairs(a.links or {}) do
    local link = t:link(support.uid(t, expected[1]), support.uid(t, expected[2]))
    assert.equal(expected[3], link.nvlinks or 0)
  end
  for _, expected in ipairs(a.refused_p2p or {}) do
    local link = t:link(support.uid(t, expected[1]), support.uid(t, expected[2]))
    assert.equal(expected[3], link.p2p.read or link.p2p.write)
    assert.is_true(pair.refused(link))
    assert.equal(0, pair.nvlinks(link))
  end
end

local function check_doubts(t, a)
  if not a.doubts then return end
  local told = {}
  for _, doubt in ipairs(t.doubts) do told[#told + 1] = tostring(doubt.code) .. ": " .. tostring(doubt.message) end
  local all = table.concat(told, "\n")
  local found = false
  for _, pattern in ipairs(a.doubts) do found = found or all:find(pattern) ~= nil end
  assert.is_true(found, "no doubt says '" .. a.doubts[1] .. "':\n" .. all)
end

local function check(t, a)
  check_devices(t, a)
  check_links(t, a)
  check_pairs(t, a)
  check_quads(t, a)
  check_nic_aware(t, a)
  check_islands(t, a)
  check_numa(t, a)
  check_nics(t, a)
  check_doubts(t, a)
  if a.advice then assert.equal(a.advice, t.suggest.advice) end
end

describe("topology corpus", function()
  if not folder then
    pending("the shared folder is not there (TPL_SHARED): its 90 topologies are not read")
    return
  end

  it("has an answer for every file, and no other", function()
    assert.same(support.files(), util.keys(answers))
  end)

  for _, name in ipairs(support.files()) do
    local a = answers[name] or {}
    if a.refused then
      it("refuses " .. name, function()
        local t, e = topo.read(folder .. "/" .. name)
        assert.is_nil(t)
        assert.equal(6, e.exit)
        for _, pattern in ipairs(a.refused) do assert.matches(pattern, e.message) end
      end)
    else
      it("answers " .. name, function()
        local t, e = topo.read(folder .. "/" .. name)
        assert.is_nil(e)
        check(t, a)
      end)
    end
  end
end)
