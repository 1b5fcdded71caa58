-- SPDX-License-Identifier: Apache-2.0
--- The JSON result and the record: every promised field, unknown as null, and a record that reads back as the same machine.
local corpus = require("spec.topo.corpus_support")
local json = require("tpl.json")
local s = require("spec.topo.support")
local sys = require("tpl.core").sys
local topo = require("tpl.topo")
local util = require("tpl.util")
local write = require("tpl.topo.write")

local function keys(t) return getmetatable(t).keys end

local function written(t)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(write.yaml(t))
  file:close()
  local again, e = topo.read(path)
  os.remove(path)
  assert.is_nil(e)
  again.source = t.source
  return again
end

-- A field that tpl does not know is a doubt with its line, which differs in what tpl writes.
local function has_unknown_field(t)
  for _, doubt in ipairs(t.doubts) do
    if doubt.code == "unknown_field" then return true end
  end
  return false
end

local function same_after_record(t) assert.equal(json.encode(write.result(t)), json.encode(write.result(written(t)))) end

describe("tpl.topo.write", function()
  -- Field names of design/interface.md section 4, `tpl topo`.
  it("gives the fields of interface.md in order, null where unknown", function()
    local r = write.result(assert(topo.from_record { devices = { {}, {} }, links = { { a = "GPU0", b = "GPU1", kind = "pix" } }, nics = { { name = "n" } } }))
    assert.same({ "source", "hosts", "networks", "devices", "links", "nics", "islands", "suggest", "doubts" }, keys(r))
    assert.same({ "id", "repeat", "driver", "cuda", "cpu", "numa" }, keys(r.hosts[1]))
    local d = r.devices[1]
    assert.same({ "uid", "kind", "host", "index", "uuid", "pci", "name", "sm", "vbios", "numa", "cpus", "mem_bytes", "free_bytes", "mig", "fabric", "pcie", "busy",
      "labels", "health", "usable", "why_not" }, keys(d))
    assert.equal(json.null, d.uuid)
    assert.equal(json.null, d.mig.mode)
    assert.same({ "mode", "pending", "parent", "profile" }, keys(d.mig))
    assert.equal(json.array_mt, getmetatable(d.why_not))
    assert.is_true(d.usable)
    assert.same({ "a", "b", "kind", "pcie", "nvlinks", "via_switch", "p2p", "p2p_ba", "gb_s", "us", "gb_s_ba", "us_ba", "data_ok", "source" }, keys(r.links[1]))
    assert.same({ "read", "write" }, keys(r.links[1].p2p))
    assert.same({ "name", "device", "pci", "numa", "near" }, keys(r.nics[1]))
    assert.same({ "tp2", "tp4", "advice" }, keys(r.suggest))
    local island = write.result(s.topo { ". NV1", "NV1 ." }).islands[1]
    assert.same({ "devices", "full", "fabric" }, keys(island))
    assert.is_true(island.full)
    local doubt = write.result(s.topo { ". NV1", "NV1 ." }).doubts[1]
    assert.same({ "line", "code", "message" }, keys(doubt))
    assert.equal(json.null, doubt.line)
  end)

  it("leaves nothing empty in a record", function()
    local text = write.yaml(s.topo { ". NV1", "NV1 ." })
    assert.is_nil(text:find("null", 1, true))
    assert.is_nil(text:find("[]", 1, true))
    assert.is_nil(text:find("{}", 1, true))
  end)

  it("keeps what importers add to the promised fields", function()
    local t = written(s.fixture("2x8xh100-infiniband.yaml"))
    assert.equal("ib", t.networks[1].kind)
    assert.equal("pix", t.nics[1].to[t.nics[1].near[1]])
    assert.equal("node-a", t.nics[1].host)
  end)

  local fixtures = "spec/fixtures/topologies"
  it("writes every fixture so that it reads back the same", function()
    local n = 0
    for _, name in ipairs(sys.list(fixtures)) do
      local t = topo.read(fixtures .. "/" .. name)
      if t and #t.devices < 100 and not has_unknown_field(t) then
        same_after_record(t)
        n = n + 1
      end
    end
    assert.is_true(n >= 20)
  end)

  it("writes every file of the corpus so that it reads back the same", function()
    if not corpus.folder() then
      pending("the shared folder is not there (TPL_SHARED)")
      return
    end
    for _, name in ipairs(corpus.files()) do
      local t = topo.read(corpus.folder() .. "/" .. name)
      if t then same_after_record(t) end
    end
  end)

  it("gives JSON that is a record too", function()
    local t = s.fixture("host-4xh100-two-in-mig.yaml")
    local path = os.tmpname()
    local file = assert(io.open(path, "wb"))
    file:write(json.encode(write.result(t)))
    file:close()
    local again = assert(topo.read(path))
    os.remove(path)
    assert.same(util.map(t.suggest.tp2, table.concat), util.map(again.suggest.tp2, table.concat))
    assert.equal("mig_on", again.devices[3].why_not[1].code)
  end)
end)
