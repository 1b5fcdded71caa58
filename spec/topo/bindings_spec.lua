-- SPDX-License-Identifier: Apache-2.0
--- Ranks run on the cores and in the memory that the plan names. The system's own word: /proc/self/task/*/status and /proc/self/numa_maps.
local cores = require("tpl.core").sys.cpu_list()

local HELPER = "build/spec/topo/standin/no_mempolicy"

-- Runs bound_run.lua in a process of its own.
local function run(words, before)
  local p = assert(io.popen(("%s build/tpl lua spec/topo/bound_run.lua %s 2>&1; echo status $?"):format(before or "", words)))
  local out = { threads = {}, warnings = {}, text = p:read("*a") }
  p:close()
  for name, cpus in out.text:gmatch("thread\t(%S+)\t(%S+)") do out.threads[name] = cpus end
  for code, message in out.text:gmatch("warning\t(%S+)\t([^\n]*)") do out.warnings[#out.warnings + 1] = { code = code, message = message } end
  out.ids, out.bound = out.text:match("ids\t([^\n]*)"), tonumber(out.text:match("bound\t(%d+)"))
  out.status = tonumber(out.text:match("status (%d+)%s*$"))
  return out
end

local function codes(out)
  local list = {}
  for i, w in ipairs(out.warnings) do list[i] = w.code end
  return list
end

describe("bindings of ranks", function()
  it("gives a rank exactly its cores: all to its only thread, parts to several", function()
    if #cores < 2 then return pending("needs two cores") end
    local a, b = cores[1], cores[2]
    local out = run(("1 %d %d"):format(b, a))
    assert.same({ ["tpl-r0.0"] = tostring(b), ["tpl-r1.0"] = tostring(a) }, out.threads, out.text)
    local both = b == a + 1 and a .. "-" .. b or a .. "," .. b
    out = run(("1 %d,%d"):format(a, b))
    assert.same({ ["tpl-r0.0"] = both }, out.threads, out.text)
    out = run(("2 %d,%d"):format(b, a))
    assert.same({ ["tpl-r0.0"] = tostring(b), ["tpl-r0.1"] = tostring(a) }, out.threads, out.text)
    assert.same({}, out.warnings)
  end)

  it("runs more threads than cores of a rank, with the same tokens", function()
    local out = run(("2 %d %d"):format(cores[1], cores[1]))
    for _, name in ipairs { "tpl-r0.0", "tpl-r0.1", "tpl-r1.0", "tpl-r1.1" } do assert.equal(tostring(cores[1]), out.threads[name], out.text) end
    assert.is_string(out.ids)
    assert.equal(run("1 @ @").ids, out.ids)
  end)

  it("binds the memory of a rank to its node, and leaves it alone without one", function()
    local out = run(("1 %d@0"):format(cores[1]))
    if not out.text:find("bound\t") or not require("tpl.core").sys.exists("/proc/self/numa_maps") then return pending("no /proc/self/numa_maps here") end
    assert.same({}, out.warnings, out.text)
    assert.is_true(out.bound >= 1, out.text) -- neighbours of one policy are one line
    assert.equal(0, run(("1 %d"):format(cores[1])).bound)
  end)

  it("keeps the cores and warns once, naming SYS_NICE, where memory may not be bound", function()
    local f = io.open(HELPER)
    if not f then return pending(HELPER .. " was not built") end
    f:close()
    local out = run(("1 %d@0 %d@0"):format(cores[1], cores[1]), HELPER)
    if out.status == 77 then return pending("no seccomp filter may be set here") end
    assert.same({ "numa_memory" }, codes(out), out.text)
    assert.matches("SYS_NICE", out.warnings[1].message, 1, true)
    assert.equal(tostring(cores[1]), out.threads["tpl-r1.0"])
    assert.equal(run("1 @ @").ids, out.ids)
    assert.equal(0, out.status)
  end)

  it("warns when the system does not give a rank its cores", function()
    local out = run("1 65535")
    assert.same({ "cpu_binding" }, codes(out), out.text)
    assert.matches("rank 0", out.warnings[1].message, 1, true)
    assert.equal(0, out.status)
  end)

  it("refuses a text that is no list of cores", function()
    local out = run("1 3-1")
    assert.is_true(out.status ~= 0)
    assert.matches("'3-1' is no list of cores", out.text, 1, true)
  end)
end)
