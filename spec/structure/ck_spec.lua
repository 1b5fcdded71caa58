-- SPDX-License-Identifier: Apache-2.0
--- Sizes and positions computed from a file's numbers go through core/base/ck.h: raw arithmetic on them in a reader is refused here.
-- A crude reading of the source, line by line, so it asks for more than is needed: what it complains of is either written with ck_*, or
-- listed below with the reason why it cannot overflow.
local tree = require("spec.support.tree")

-- path -> { exact text of the line without indentation -> why it cannot overflow }
local allowed = {
  ["core/model/gguf.c"] = {
    ['TPL_TRY(need(r, n * 8 + 12, "", err));'] = "n is at most MAX_RANK",
    ["r->at += n * 8 + 12;"] = "n is at most MAX_RANK, and need() found the bytes",
  },
  ["core/model/kv.c"] = {
    ["return load_le(kv->data + i * (uint64_t)size, size);"] = "i < kv->n, whose bytes the reader found in the file",
  },
  ["core/model/names.c"] = {
    ["while (n_slots / 4 * 3 < n) n_slots *= 2;"] = "divided first",
  },
  ["core/token/tokenizer.c"] = {
    ["if (!t->shown_end || !tpl_buf_reserve(&b, v->text_len + 1)) {"] = "the length of a text in memory",
  },
}

local files = tree.files({ "core/model", "core/token" }, { "%.[ch]$" })
local allocators = { "malloc", "realloc", "reallocarray", "alloca", "aligned_alloc", "ckpt_alloc", "tpl_buf_reserve", "tpl_mem_[%w_]+" }

-- The text between the parenthesis at `open` and its partner.
local function arguments(line, open)
  return line:match("^%b()", open) or line:sub(open)
end

-- A star with a value on both sides (in declarations it stands next to the name). Copies of what is already in memory are left alone; so
-- are factors in figures in core/token, whose counts are bounded by TPL_VOCAB_MAX and TPL_TOKENIZE_MAX_BYTES.
local function multiplies(line, path)
  if line:find("^%s*#%s*define") or line:find("%f[%w]mem%w+%(") then return false end
  if line:find("[%w_%]]%*[%w_%(]") then return true end
  for left, right in line:gmatch("([%w_%)%]]+)%s%*%s?([%w_%(%*&]+)") do
    local is_figure = left:find("^%d") or right:find("^%d")
    local is_pointer = left == "const" or left == "struct" or not line:find("[%w_%)%]]%s%*%s[%w_%(%*&]")
    if not is_pointer and (not is_figure or path:find("^core/model/")) then return true end
  end
  return false
end

--- Gives the reason why a line of code is refused, or nil.
local function refused(line, path)
  if line:find("^%s*#%s*include") then return end
  if multiplies(line, path) then return "raw multiplication" end
  for _, name in ipairs(allocators) do
    local _, last = line:find("%f[%w_]" .. name .. "%(")
    local args = last and arguments(line, last)
    if args and (args:find("%s[*+]%s") or args:find("<<")) then return "size computed in a call of an allocator" end
  end
  -- offset + bytes > size: the sum may wrap. Adding a literal to the index of a loop is left alone.
  for right in line:gmatch("[%w_%]%)]%s%+%s([%w_>.%-]+)%s[<>]=?%s") do
    if not right:find("^%d+$") and not line:find("%?") then return "range check by a raw sum (ck_range)" end
  end
end

describe("raw size arithmetic in core/model and core/token", function()
  it("is refused", function()
    local bad, used = {}, {}
    for _, path in ipairs(files) do
      for i, line in ipairs(tree.lines(tree.bare_c(tree.read(path)))) do
        local why = refused(line, path)
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
    } do assert.truthy(refused(line, "core/model/x.c"), line) end
  end)

  it("is told from what looks like it", function()
    for _, line in ipairs {
      "const char *const *names = x->names;", "void *p = calloc(n, sizeof *p);", "for (i = 0; i + 1 < n; i++)", "*out = *in;", "f(*p, &q);",
      "if (!ck_mul(n, sizeof *p, &bytes)) return false;", "(void *)x", "typedef int (*compare)(const void *, const void *);",
    } do assert.is_nil(refused(line, "core/model/x.c"), line) end
  end)
end)
