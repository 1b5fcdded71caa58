-- SPDX-License-Identifier: Apache-2.0
--- Implements the filters on text: name -> fn(args, kwargs); args[1] is the value filtered.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local text = require("tpl.jinja.text")
local unicode = require("tpl.jinja.unicode")
local repr = require("tpl.jinja.repr")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local ops = require("tpl.jinja.ops")
local number = require("tpl.jinja.number")
local compare = require("tpl.jinja.compare")
local call = require("tpl.jinja.call")
local escape = require("tpl.jinja.escape")
local str_edit = require("tpl.jinja.str_edit")
local tojson = require("tpl.jinja.tojson")

local M = {}

local opt, opt_int = call.opt, call.opt_int

local function filter(names, params, fn)
  local first = names:match("%S+")
  for name in names:gmatch("%S+") do
    M[name] = call.bind("do_" .. first, params, fn)
  end
end

--- Apply fn to the text of a value; Markup stays Markup.
local function soft(fn)
  return function(v, ...)
    local s = repr.str(v)
    if text.is_ascii(s) then state.bytes(#s) else state.chars(#s) end
    local out = fn(s, ...)
    return values.is_markup(v) and values.markup(out) or out
  end
end

filter("upper", "s", soft(unicode.upper))
filter("lower", "s", soft(unicode.lower))
filter("capitalize", "s", soft(unicode.capitalize))
filter("string", "s", function(v) return values.is_markup(v) and v or repr.str(v) end)
filter("safe", "value", function(v) return values.markup(repr.str(v)) end)
filter("escape e", "s", escape.markup)
filter("forceescape", "value", function(v) return values.markup(escape.text(repr.str(v))) end)

filter("trim", "value chars?", soft(function(s, chars)
  chars = opt(chars)
  return text.strip(s, chars and call.need_str(chars, "strip arg"), true, true)
end))

filter("center", "value width?", soft(function(s, width)
  return str_edit.center(s, opt_int(width, 80), " ")
end))

-- The filter cuts words at white space, "-" and opening brackets, unlike str.title.
local function starts_word(c)
  return text.is_space(c) or c:find("^[-({%[<]$") ~= nil
end

filter("title", "s", soft(function(s)
  state.chars(#s)
  local out, word = {}, {}
  local function flush()
    if #word > 0 then
      out[#out + 1] = unicode.upper(word[1]) .. unicode.lower(table.concat(word, "", 2))
      word = {}
    end
  end
  for c in text.each(s) do
    if starts_word(c) then
      flush()
      out[#out + 1] = c
    else
      word[#word + 1] = c
    end
  end
  flush()
  return table.concat(out)
end))

filter("replace", "s old new count?", function(v, old, new, count)
  local max = opt_int(count, -1)
  if state.current().autoescape then
    local s = (values.is_markup(old) or values.is_markup(new)) and escape.text(v) or repr.str(v)
    local out = str_edit.replace(s, repr.str(old), repr.str(new), max)
    return values.is_markup(v) and values.markup(out) or out
  end
  return str_edit.replace(repr.str(v), repr.str(old), repr.str(new), max)
end)

local function indent_lines(s, indent, first, blank)
  local lines = text.lines(s .. "\n")
  for i = 2, #lines do
    if blank or lines[i] ~= "" then lines[i] = indent .. lines[i] end
  end
  state.bytes(#s + #lines * #indent)
  local out = table.concat(lines, "\n")
  return first and indent .. out or out
end

filter("indent", "s width? first? blank?", function(v, width, first, blank)
  local s = values.text(v)
  if not s then ops.add(v, "\n") end
  if not s then errors.raise("TypeError", "indent needs a str, not %s", values.kind(v)) end
  local indent = width and values.text(width)
  if not indent then
    local n = math.max(0, opt_int(width, 4))
    state.bytes(n)
    indent = (" "):rep(n)
  end
  local out = indent_lines(s, indent, first ~= nil and values.truth(first), blank ~= nil and values.truth(blank))
  return values.is_markup(v) and values.markup(out) or out
end)

filter("truncate", "s length? killwords? end? leeway?", function(v, length, kill, tail, leeway)
  local s = values.text(v)
  if not s then errors.raise("TypeError", "object of type '%s' has no len()", values.kind(v)) end
  length, leeway, tail = opt_int(length, 255), opt_int(leeway, 5), repr.str(opt(tail, "..."))
  local keep = length - text.len(tail)
  if keep < 0 or leeway < 0 then errors.raise("AssertionError", "expected length >= %d", text.len(tail)) end
  if text.len(s) <= length + leeway then return v end
  local cut = text.slice(s, 0, keep)
  if kill ~= nil and values.truth(kill) then return cut .. tail end
  return (cut:match("^(.*) ") or cut) .. tail
end)

filter("wordcount", "s", function(v)
  local s, n, inside = repr.str(v), 0, false
  state.chars(#s)
  for c in text.each(s) do
    local is_word = c == "_" or unicode.is_alnum_char(c)
    if is_word and not inside then n = n + 1 end
    inside = is_word
  end
  return n
end)

-- Cut a word that is longer than a line into lines; gives the last piece.
local function cut_word(out, word, width)
  local chars = text.chars(word)
  local from = 1
  while #chars - from + 1 > width do
    out[#out + 1] = table.concat(chars, "", from, from + width - 1)
    from = from + width
  end
  return table.concat(chars, "", from)
end

-- Words and blanks of one line put into lines of at most `width`; long words may be cut.
local function wrap_line(line, width, cut_words)
  local out, current = {}, ""
  local function flush()
    current = text.strip(current, " ", false, true)
    if current ~= "" then out[#out + 1] = current end
    current = ""
  end
  for blank, word in line:gmatch("( *)([^ ]*)") do
    if text.len(current) + #blank + text.len(word) > width and current ~= "" then
      flush()
      blank = ""
    end
    if #out > 0 and current == "" then blank = "" end
    if cut_words and text.len(word) > width then word = cut_word(out, word, width) end
    current = current .. blank .. word
  end
  flush()
  return out
end

filter("wordwrap", "s width? break_long_words? wrapstring? break_on_hyphens?", function(v, width, cut, joiner)
  width = opt_int(width, 79)
  if width < 1 then errors.raise("ValueError", "invalid width %d (must be > 0)", width) end
  local s = call.need_str(v, "wordwrap argument")
  state.chars(#s)
  local out = {}
  for i, line in ipairs(text.lines(s)) do
    out[i] = table.concat(wrap_line(line, width, cut == nil or values.truth(cut)), repr.str(opt(joiner, "\n")))
  end
  return table.concat(out, repr.str(opt(joiner, "\n")))
end)

M.format = function(args, kwargs)
  if #args > 1 and kwargs then
    errors.raise("FilterArgumentError", "can't handle positional and keyword arguments at the same time")
  end
  local v = args[1]
  local rest = kwargs or values.tuple({ unpack(args, 2) })
  return ops.mod(values.is_markup(v) and v or repr.str(v), rest)
end

-- Remove what lies between two marks; an opening mark without a closing one stays.
local function cut_between(s, open, close)
  local out, p = {}, 1
  while true do
    local q = s:find(open, p, true)
    local stop = q and select(2, s:find(close, q + #open, true))
    if not stop then break end
    out[#out + 1] = s:sub(p, q - 1)
    p = stop + 1
  end
  return table.concat(out) .. s:sub(p)
end

local unescaped = { lt = "<", gt = ">", amp = "&", quot = '"', ["#34"] = '"', ["#39"] = "'" }

filter("striptags", "value", function(v)
  local s = repr.str(v)
  state.chars(#s)
  s = cut_between(cut_between(s, "<!--", "-->"), "<", ">")
  local words = {}
  for word in s:gmatch("%S+") do words[#words + 1] = word end
  return (table.concat(words, " "):gsub("&([#%w]+);", unescaped))
end)

local function percent_encode(v, query)
  local s = repr.str(v)
  state.bytes(3 * #s)
  s = s:gsub("[^%w_.~/-]", function(c) return ("%%%02X"):format(c:byte()) end)
  if query then s = s:gsub("/", "%%2F"):gsub("%%20", "+") end
  return s
end

filter("urlencode", "value", function(v)
  if values.is_str(v) or not iter.is_iterable(v) then return percent_encode(v, false) end
  local parts = {}
  local items = values.is_dict(v) and setmetatable({ dict = v, what = "items" }, values.view_mt) or v
  for item in iter.iter(items) do
    local pair = iter.unpack(item, 2)
    parts[#parts + 1] = percent_encode(pair[1], true) .. "=" .. percent_encode(pair[2], true)
  end
  return table.concat(parts, "&")
end)

filter("xmlattr", "d autospace?", function(d, autospace)
  if not values.is_dict(d) then
    errors.raise("AttributeError", "'%s' object has no attribute 'items'", values.kind(d))
  end
  local parts = {}
  for i = 1, d.n do
    local v = d.vals[i]
    if v ~= values.none and not values.is_undefined(v) then
      local key = repr.str(d.keys[i])
      if key:find("[%s/>=]") then
        errors.raise("ValueError", "Invalid character in attribute name: %s", repr.quote(key))
      end
      parts[#parts + 1] = escape.text(key) .. '="' .. escape.text(v) .. '"'
    end
  end
  local s = table.concat(parts, " ")
  if s ~= "" and (autospace == nil or values.truth(autospace)) then s = " " .. s end
  return state.current().autoescape and values.markup(s) or s
end)

filter("tojson", "x ensure_ascii? indent? separators? sort_keys?", function(v, ascii, indent, separators, sort_keys)
  return tojson.encode(v, {
    ascii = ascii ~= nil and values.truth(ascii), indent = indent, separators = separators,
    sort_keys = sort_keys ~= nil and values.truth(sort_keys),
  })
end)

filter("pprint", "value", function(v)
  if values.is_dict(v) then
    -- pprint sorts keys where they can be compared.
    local order = {}
    for i = 1, v.n do order[i] = i end
    local ok, sorted = pcall(compare.sorted, order, function(i) return v.keys[i] end)
    local out = values.dict()
    for _, i in ipairs(ok and sorted or order) do values.dict_set(out, v.keys[i], v.vals[i]) end
    v = out
  end
  return repr.repr(v)
end)

filter("filesizeformat", "value binary?", function(v, binary)
  local x = number.to_double(v)
  if not x then errors.raise("ValueError", "could not convert to float: %s", values.repr(v)) end
  local base = binary ~= nil and values.truth(binary) and 1024 or 1000
  local names = base == 1024 and { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB" }
    or { "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB" }
  if x == 1 then return "1 Byte" end
  if x < base then return ("%d Bytes"):format(x) end
  local unit = base
  for i, name in ipairs(names) do
    if x < unit * base or i == #names then return ("%.1f %s"):format(x / unit, name) end
    unit = unit * base
  end
end)

return M
