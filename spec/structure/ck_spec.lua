-- SPDX-License-Identifier: Apache-2.0
--- Sizes and positions computed from a file's numbers go through core/base/ck.h: raw arithmetic on them in a reader is refused here.
-- A crude reading of the source, line by line, so it asks for more than is needed: what it complains of is either written with ck_*, or
-- listed below with the reason why it cannot overflow.
local tree = require("spec.support.tree")

-- path -> { exact text of the line without indentation -> why it cannot overflow }
local allowed = {
  ["core/token/unicode.h"] = {
    ["return c < 0x110000 ? tpl_unicode_class[tpl_unicode_index[c >> 7] * 128u + (c & 127)] : 0;"] = "the index is a byte",
  },
}

local files = tree.files({ "core/model", "core/token" }, { "%.[ch]$" })
local allocators = { "malloc", "realloc", "reallocarray", "alloca", "aligned_alloc", "ckpt_alloc", "tpl_buf_reserve", "tpl_mem_[%w_]+" }

-- The text between the parenthesis at `open` and its partner.
local function arguments(line, open)
  return line:match("^%b()", open) or line:sub(open)
end

--- Gives the reason why a line of code is refused, or nil.
local function refused(line)
  if line:find("^%s*#%s*include") then return end
  -- A star with a value on both sides; in declarations it stands next to the name, so there is no space on one side.
  if line:find("[%w_%)%]]%s%*%s[%w_%(%*&]") or line:find("[%w_%)%]]%*[%w_%(]") and not line:find("%*[,)]") then return "raw multiplication" end
  for _, name in ipairs(allocators) do
    local _, last = line:find("%f[%w_]" .. name .. "%(")
    local args = last and arguments(line, last)
    if args and (args:find("%s[*+]%s") or args:find("<<")) then return "size computed in a call of an allocator" end
  end
  -- offset + bytes > size: the sum may wrap. Adding a literal to the index of a loop is left alone.
  for right in line:gmatch("[%w_%]%)]%s%+%s([%w_>.%-]+)%s[<>]=?%s") do
    if not right:find("^%d+$") then return "range check by a raw sum (ck_range)" end
  end
end

describe("raw size arithmetic in core/model and core/token", function()
  it("is refused", function()
    local bad, used = {}, {}
    for _, path in ipairs(files) do
      for i, line in ipairs(tree.lines(tree.bare_c(tree.read(path)))) do
        local why = refused(line)
        local text = line:match("^%s*(.-)%s*$")
        if why and allowed[path] and allowed[path][text] then
          used[path .. text] = true
        elseif why then
          bad[#bad + 1] = ("%s:%d: %s: %s"):format(path, i, why, text)
        end
      end
    end
    for path, texts in pairs(allowed) do
      for text in pairs(texts) do
        if not used[path .. text] then bad[#bad + 1] = ("%s: no longer there, take it off the list: %s"):format(path, text) end
      end
    end
    assert.same({}, bad)
  end)

  it("is recognised", function()
    for _, line in ipairs {
      "char *p = malloc(n * size);", "uint64_t end = n * 8 + 12;", "p = realloc(p, len + 1);", "if (offset + bytes > size) return fail();",
      "x = a*b;", "tpl_buf_reserve(&b, n << 3)", "total = count * (uint64_t)width;",
    } do assert.truthy(refused(line), line) end
  end)

  it("is told from what looks like it", function()
    for _, line in ipairs {
      "const char *const *names = x->names;", "void *p = calloc(n, sizeof *p);", "for (i = 0; i + 1 < n; i++)", "*out = *in;", "f(*p, &q);",
      "if (!ck_mul(n, sizeof *p, &bytes)) return false;", "(void *)x", "typedef int (*compare)(const void *, const void *);",
    } do assert.is_nil(refused(line), line) end
  end)
end)
