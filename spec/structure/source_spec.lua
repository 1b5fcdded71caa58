-- SPDX-License-Identifier: Apache-2.0
--- What every source file keeps to: licence line, size, one place for environment variables, no printing below the command line.
local tree = require("spec.support.tree")

-- Files that may be longer than MAX_LINES, and why.
local MAX_LINES = 800
local may_be_long = {
  ["core/token/unicode_tables.c"] = "generated",
  ["lua/tpl/_meta/tpl.lua"] = "generated",
  ["spec/c/kernels_rest_test.c"] = "one test file for many small ops",
}

local c_files = tree.files({ "core", "kernels" }, { "%.[ch]$", "%.inc$", "%.cuh?$" })

--- Gives "path:line: text" wherever a word of `words` stands in the code of c_files, but for the files in `except`. "f(" means a call.
local function uses(words, except)
  local out = {}
  for _, path in ipairs(c_files) do
    if not except[path] then
      for i, line in ipairs(tree.lines(tree.bare_c(tree.read(path)))) do
        for _, word in ipairs(words) do
          local pattern = "%f[%w_]" .. word:gsub("%($", "%%s*%%(")
          if line:find(pattern .. (word:find("%($") and "" or "%f[^%w_]")) then out[#out + 1] = ("%s:%d: %s"):format(path, i, word) end
        end
      end
    end
  end
  return out
end

describe("source files", function()
  it("start with the licence line", function()
    local bad = {}
    local files = tree.files({ "." }, { "%.[ch]$", "%.inc$", "%.cuh?$", "%.lua$", "%.py$", "%.sh$" })
    for _, path in ipairs(files) do
      local head = tree.read(path):sub(1, 300)
      if not head:find("SPDX-License-Identifier: Apache-2.0", 1, true) then bad[#bad + 1] = path end
    end
    assert.same({}, bad)
  end)

  it("have at most " .. MAX_LINES .. " lines", function()
    local bad = {}
    for _, path in ipairs(tree.files({ "core", "kernels", "lua", "policies", "examples", "spec" }, { "%.[ch]$", "%.inc$", "%.cuh?$", "%.lua$", "%.sh$", "%.py$" })) do
      local n = #tree.lines(tree.read(path))
      if n > MAX_LINES and not may_be_long[path] then bad[#bad + 1] = ("%s: %d lines"):format(path, n) end
    end
    assert.same({}, bad)
  end)

  it("read environment variables in core/base/env.c only", function()
    assert.same({}, uses({ "getenv(", "secure_getenv(", "setenv(", "putenv(", "environ" }, { ["core/base/env.c"] = true }))
    local bad = {}
    for _, path in ipairs(tree.files({ "lua", "policies", "examples" }, { "%.lua$" })) do
      if tree.read(path):find("os%.getenv") then bad[#bad + 1] = path end
    end
    assert.same({}, bad)
  end)

  it("print nothing below the command line", function()
    assert.same({}, uses({ "printf(", "puts(", "putchar(", "perror(", "stdout", "stderr" }, { ["core/bind/main.c"] = true }))
    local bad = {}
    for _, path in ipairs(tree.files({ "lua" }, { "%.lua$" })) do
      for i, line in ipairs(tree.lines(tree.read(path))) do
        local code = line:gsub("%-%-.*", "")
        local prints = code:find("%f[%w_.:]print%s*%(") or code:find("io%.std%a+") or code:find("io%.write")
        if prints and not path:find("^lua/tpl/cli/") then bad[#bad + 1] = ("%s:%d"):format(path, i) end
      end
    end
    assert.same({}, bad)
  end)

  it("end the process, and handle signals, in core/bind/main.c only", function()
    assert.same({}, uses({ "exit(", "_exit(", "abort(", "quick_exit(", "signal(", "sigaction" },
      { ["core/bind/main.c"] = true }))
  end)

  it("call nothing that cannot be told how much room there is", function()
    assert.same({}, uses({ "alloca(", "gets(", "strcpy(", "strcat(", "sprintf(", "vsprintf(" }, {}))
  end)
end)
