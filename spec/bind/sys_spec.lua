-- SPDX-License-Identifier: Apache-2.0
--- tpl.core.sys. Expected values: the system's own tools (nproc, hostname, /proc) and interface.md section 5.
local sys = require("tpl.core").sys
local tmpdir = require("spec.support.tmpdir")

local function output(command)
  local p = assert(io.popen(command))
  local s = p:read("*a")
  p:close()
  return (s:gsub("%s+$", ""))
end

describe("tpl.core.sys", function()
  it("counts at most the cores that nproc shows, and lists exactly those", function()
    local n = tonumber(output("nproc"))
    assert.equal(n, #sys.cpu_list())
    assert.is_true(sys.cpus() >= 1 and sys.cpus() <= n)
  end)

  it("reads memory figures that fit together", function()
    assert.is_true(sys.rss() > 0 and sys.rss() <= sys.rss_peak() + 2 ^ 20)
    assert.is_true(sys.mem_available() <= sys.mem_total())
    local total_kb = tonumber(sys.read_file("/proc/meminfo"):match("MemTotal:%s*(%d+)"))
    assert.is_true(sys.mem_total() <= total_kb * 1024)
  end)

  it("names the machine and the program", function()
    assert.equal(output("hostname"), sys.hostname())
    assert.equal(output("readlink /proc/" .. sys.pid() .. "/exe"), sys.exe())
    assert.equal(output("pwd -P"), sys.cwd())
    assert.equal(output("pwd -P"), sys.realpath("."))
  end)

  it("has a clock in microseconds", function()
    local t0 = sys.now_us()
    sys.sleep_us(2000)
    assert.is_true(sys.now_us() - t0 >= 2000)
    assert.is_true(math.abs(sys.time() - os.time()) < 2)
  end)

  it("gives nil for an unset variable and raises for one that tpl does not read", function()
    assert.equal(os.getenv("HOME"), sys.env("HOME"))
    assert.has_error(function() sys.env("LD_PRELOAD") end)
    for _, name in ipairs(sys.env_names()) do
      local want = os.getenv(name)
      if want == "" then want = nil end
      assert.equal(want, sys.env(name))
    end
  end)

  it("parses TPL_FAULT, any where a field is missing or *", function()
    assert.same({ kind = "none" }, sys.fault(nil))
    assert.same({ kind = "none" }, sys.fault(""))
    assert.same({ kind = "stall" }, sys.fault("stall:*"))
    local want = { kind = "swap_shard", rank = 2, op = "blk.3.o_proj", step = 7 }
    assert.same(want, sys.fault("swap_shard:2:blk.3.o_proj:7"))
    local value, message, code = sys.fault("explode:1")
    assert.is_nil(value)
    assert.matches("^TPL_FAULT: kind 'explode'", message)
    assert.equal("arg", code)
  end)

  it("is no terminal when the output goes to a pipe", function()
    assert.is_false(sys.isatty(99))
    assert.is_nil(sys.columns(99))
  end)
end)

describe("tpl.core.sys on files", function()
  local folder, dir
  before_each(function()
    folder = tmpdir.new()
    dir = folder.path
  end)
  after_each(function() folder:close() end)

  it("makes nested folders, also those that are there", function()
    assert.is_true(sys.mkdir_p(dir .. "/a/b//c/"))
    assert.is_true(sys.mkdir_p(dir .. "/a/b/c"))
    assert.is_true(sys.is_dir(dir .. "/a/b/c"))
    assert.is_false(sys.is_file(dir .. "/a/b/c"))
  end)

  it("refuses a folder below a file", function()
    assert.is_true(sys.write_file(dir .. "/f", ""))
    local value, message, code = sys.mkdir_p(dir .. "/f/g")
    assert.is_nil(value)
    assert.matches("Not a directory", message)
    assert.equal("io", code)
    assert.is_nil((sys.mkdir_p(dir .. "/f")))
  end)

  it("writes whole files and leaves no other behind", function()
    local text = "a\0b" .. ("x"):rep(100000)
    assert.is_true(sys.write_file(dir .. "/f", "old"))
    assert.is_true(sys.write_file(dir .. "/f", text))
    assert.equal(text, sys.read_file(dir .. "/f"))
    assert.same({ "f" }, sys.list(dir))
    local s = sys.stat(dir .. "/f")
    assert.equal("file", s.kind)
    assert.equal(#text, s.bytes)
    assert.is_nil((sys.write_file(dir .. "/none/f", "")))
  end)

  it("refuses to read folders and files over the limit", function()
    assert.is_true(sys.write_file(dir .. "/f", "12345"))
    assert.equal("12345", sys.read_file(dir .. "/f", 5))
    assert.is_nil((sys.read_file(dir .. "/f", 4)))
    assert.is_nil((sys.read_file(dir)))
    assert.is_nil((sys.read_file(dir .. "/none")))
  end)

  it("lists names in byte order", function()
    for _, name in ipairs { "b", "B", "a10", "a9", ".h" } do
      assert.is_true(sys.write_file(dir .. "/" .. name, ""))
    end
    assert.same({ ".h", "B", "a10", "a9", "b" }, sys.list(dir))
    assert.is_nil((sys.list(dir .. "/none")))
  end)

  it("renames and removes", function()
    assert.is_true(sys.write_file(dir .. "/f", "1"))
    assert.is_true(sys.rename(dir .. "/f", dir .. "/g"))
    assert.is_false(sys.exists(dir .. "/f"))
    assert.is_true(sys.remove(dir .. "/g"))
    assert.is_nil((sys.remove(dir .. "/g")))
  end)
end)
