-- SPDX-License-Identifier: Apache-2.0
--- Implements the methods of Python's str. Each entry is fn(self, args, kwargs); self is a Lua string.
local errors = require("tpl.jinja.errors")
local state = require("tpl.jinja.state")
local text = require("tpl.jinja.text")
local unicode = require("tpl.jinja.unicode")
local values = require("tpl.jinja.values")
local iter = require("tpl.jinja.iter")
local call = require("tpl.jinja.call")
local format = require("tpl.jinja.format")
local str_format = require("tpl.jinja.str_format")

local M = {}

--- Define a method; fn gets self and the bound parameters.
local function method(name, params, fn)
    local bound = call.bind("str." .. name, "self " .. params, fn)
    M[name] = function(self, args, kwargs)
        return bound({ self, unpack(args) }, kwargs)
    end
end

local function simple(name, fn)
    method(name, "", function(s)
        state.chars(#s)
        return fn(s)
    end)
end

simple("upper", unicode.upper)
simple("lower", unicode.lower)
simple("title", unicode.title)
simple("capitalize", unicode.capitalize)
simple("swapcase", unicode.swapcase)
simple("casefold", unicode.casefold)
simple("isalpha", unicode.is_alpha)
simple("isalnum", unicode.is_alnum)
simple("isdigit", unicode.is_digit)
simple("isdecimal", unicode.is_decimal)
simple("isnumeric", unicode.is_numeric)
simple("isspace", unicode.is_space)
simple("islower", unicode.is_lower)
simple("isupper", unicode.is_upper)
simple("istitle", unicode.is_title)
simple("isprintable", unicode.is_all_printable)
simple("isascii", text.is_ascii)
simple("isidentifier", function(s)
    local first = true
    for c in text.each(s) do
        if not unicode.is_word(c, first) then return false end
        first = false
    end
    return not first
end)

-- Stripping ---------------------------------------------------------------------------------------

local function stripper(name, left, right)
    method(name, "chars?", function(s, chars)
        state.bytes(#s)
        chars = call.opt(chars)
        return text.strip(s, chars and call.need_str(chars, "strip arg"), left, right)
    end)
end

stripper("strip", true, true)
stripper("lstrip", true, false)
stripper("rstrip", false, true)
method("removeprefix", "prefix", function(s, p)
    p = call.need_str(p, "removeprefix() argument")
    return s:sub(1, #p) == p and s:sub(#p + 1) or s
end)
method("removesuffix", "suffix", function(s, p)
    p = call.need_str(p, "removesuffix() argument")
    return p ~= "" and s:sub(-#p) == p and s:sub(1, -#p - 1) or s
end)

-- Splitting and joining ---------------------------------------------------------------------------

local function split_space(s, max)
    local out, p = {}, text.skip_space(s, 1)
    while p <= #s do
        if #out == max then
            out[#out + 1] = s:sub(p)
            break
        end
        local q = p
        repeat
            q = s:find("[%z\1-\127\192-\255]", q + 1) or #s + 1
        until q > #s or text.is_space(s:match("^[%z\1-\127\192-\255][\128-\191]*", q))
        out[#out + 1] = s:sub(p, q - 1)
        p = text.skip_space(s, q)
    end
    return out
end

local function split_at(s, sep, max)
    local out, p = {}, 1
    while #out ~= max do
        local q = s:find(sep, p, true)
        if not q then break end
        out[#out + 1] = s:sub(p, q - 1)
        p = q + #sep
    end
    out[#out + 1] = s:sub(p)
    return out
end

local function reverse_list(list)
    local i, j = 1, #list
    while i < j do
        list[i], list[j] = list[j], list[i]
        i, j = i + 1, j - 1
    end
    return list
end

-- Splitting from the right is splitting the reversed bytes from the left: separators are whole
-- strings, so byte order does not matter once each part is turned back.
local function split_at_right(s, sep, max)
    local out = split_at(s:reverse(), sep:reverse(), max)
    for i = 1, #out do out[i] = out[i]:reverse() end
    return reverse_list(out)
end

local function split_space_right(s, max)
    local words = split_space(s, -1)
    if max < 0 or #words <= max + 1 then return words end
    -- The first part keeps its inner white space: cut the text before the words that split off.
    local out, last = {}, #s
    for i = #words, #words - max + 1, -1 do
        local word = words[i]
        last = text.skip_space_back(s, last)
        out[#out + 1] = word
        last = last - #word
    end
    out[#out + 1] = text.strip(s:sub(1, last), nil, false, true)
    return reverse_list(out)
end

local function splitter(name, at_space, at_sep)
    method(name, "sep? maxsplit?", function(s, sep, max)
        state.bytes(#s)
        max = call.opt_int(max, -1)
        if max < 0 then max = -1 end
        sep = call.opt(sep)
        local parts
        if not sep then
            parts = at_space(s, max)
        else
            sep = call.need_str(sep, "separator")
            if sep == "" then errors.raise("ValueError", "empty separator") end
            parts = at_sep(s, sep, max)
        end
        state.items(#parts)
        return values.list(parts)
    end)
end

splitter("split", split_space, split_at)
splitter("rsplit", split_space_right, split_at_right)

method("splitlines", "keepends?", function(s, keep)
    state.bytes(#s)
    return values.list(text.lines(s, keep ~= nil and values.truth(keep)))
end)

method("partition", "sep", function(s, sep)
    sep = call.need_str(sep, "separator")
    if sep == "" then errors.raise("ValueError", "empty separator") end
    local p = s:find(sep, 1, true)
    if not p then return values.tuple({ s, "", "" }) end
    return values.tuple({ s:sub(1, p - 1), sep, s:sub(p + #sep) })
end)

method("rpartition", "sep", function(s, sep)
    sep = call.need_str(sep, "separator")
    if sep == "" then errors.raise("ValueError", "empty separator") end
    local parts = split_at_right(s, sep, 1)
    if #parts == 1 then return values.tuple({ "", "", s }) end
    return values.tuple({ parts[1], sep, parts[2] })
end)

method("join", "iterable", function(s, items)
    local parts, n = {}, 0
    if not iter.is_iterable(items) then errors.raise("TypeError", "can only join an iterable") end
    for item in iter.iter(items) do
        local part = values.text(item)
        if not part then
            errors.raise("TypeError", "sequence item %d: expected str instance, %s found", #parts, values.kind(item))
        end
        parts[#parts + 1] = part
        n = n + #part + #s
    end
    state.bytes(n)
    return table.concat(parts, s)
end)

-- Searching ---------------------------------------------------------------------------------------

-- Byte range of Python indices start and stop.
local function window(s, first, last)
    local n = text.len(s)
    first, last = call.opt_int(first, 0), call.opt_int(last, n)
    if first < 0 then first = math.max(0, first + n) end
    if last < 0 then last = math.max(0, last + n) end
    last = math.min(last, n)
    if first > last then return nil end
    local head = text.slice(s, 0, first)
    return #head + 1, #head + #text.slice(s, first, last)
end

local function find_first(s, part, from, to)
    local p, q = s:find(part, from, true)
    return p and q <= to and p or nil
end

local function find_last(s, part, from, to)
    for p = to - #part + 1, from, -1 do
        if s:sub(p, p + #part - 1) == part then return p end
    end
    return nil
end

local function finder(name, search, on_missing)
    method(name, "sub start? end?", function(s, part, first, last)
        part = call.need_str(part, name .. "() argument")
        state.bytes(#s)
        local from, to = window(s, first, last)
        local p = from and search(s, part, from, to)
        return p and text.index_of(s, p) or on_missing()
    end)
end

local function minus_one() return -1 end
local function not_found() return errors.raise("ValueError", "substring not found") end

finder("find", find_first, minus_one)
finder("rfind", find_last, minus_one)
finder("index", find_first, not_found)
finder("rindex", find_last, not_found)

method("count", "sub start? end?", function(s, part, first, last)
    part = call.need_str(part, "count() argument")
    state.bytes(#s)
    local from, to = window(s, first, last)
    if not from then return 0 end
    if part == "" then return text.len(s:sub(from, to)) + 1 end
    local n = 0
    while true do
        local p, q = s:find(part, from, true)
        if not p or q > to then return n end
        n, from = n + 1, q + 1
    end
end)

local function affix(name, matches)
    method(name, "prefix start? end?", function(s, part, first, last)
        local from, to = window(s, first, last)
        local options = values.is_tuple(part) and part or { part }
        for i = 1, #options do
            local p = values.text(options[i])
            if not p then
                errors.raise("TypeError", "%s first arg must be str or a tuple of str, not %s", name,
                    values.kind(options[i]))
            end
            if from and matches(s:sub(from, to), p) then return true end
        end
        return false
    end)
end

affix("startswith", function(s, p) return s:sub(1, #p) == p end)
affix("endswith", function(s, p) return p == "" or s:sub(-#p) == p and #s >= #p end)

--- Replace occurrences of `old`, at most `max` of them if max is not negative.
function M.replace_text(s, old, new, max)
    if max == 0 then return s end
    if old == "" then
        state.chars(#s)
        local out, n = { new }, 1
        for c in text.each(s) do
            out[#out + 1] = c
            if n ~= max then
                out[#out + 1] = new
                n = n + 1
            end
        end
        state.bytes(#s + n * #new)
        return table.concat(out)
    end
    local parts = split_at(s, old, max)
    state.bytes(#s + #parts * #new)
    return table.concat(parts, new)
end

method("replace", "old new count?", function(s, old, new, max)
    old = call.need_str(old, "replace() argument 1")
    new = call.need_str(new, "replace() argument 2")
    return M.replace_text(s, old, new, call.opt_int(max, -1))
end)

-- Layout ------------------------------------------------------------------------------------------

local function padder(name, align)
    method(name, "width fillchar?", function(s, width, fill)
        fill = call.opt(fill, " ")
        if not values.text(fill) or text.len(values.text(fill)) ~= 1 then
            errors.raise("TypeError", "The fill character must be exactly one character long")
        end
        return format.pad(s, call.opt_int(width, 0), align, values.text(fill))
    end)
end

padder("ljust", "<")
padder("rjust", ">")

--- str.center: the odd blank goes left when both the width and the padding are odd.
function M.center_text(s, width, fill)
    local missing = width - text.len(s)
    if missing <= 0 then return s end
    local left = math.floor(missing / 2) + (missing % 2 == 1 and width % 2 == 1 and 1 or 0)
    state.bytes(#s + missing * #fill)
    return fill:rep(left) .. s .. fill:rep(missing - left)
end

method("center", "width fillchar?", function(s, width, fill)
    return M.center_text(s, call.opt_int(width, 0), call.need_str(call.opt(fill, " "), "fill character"))
end)

method("zfill", "width", function(s, width)
    return format.pad(s, call.opt_int(width, 0), "=", "0")
end)

method("expandtabs", "tabsize?", function(s, size)
    size = call.opt_int(size, 8)
    state.chars(#s)
    local out, column = {}, 0
    for c in text.each(s) do
        if c == "\t" then
            local n = size > 0 and size - column % size or 0
            state.bytes(n)
            out[#out + 1] = (" "):rep(n)
            column = column + n
        else
            column = (c == "\n" or c == "\r") and 0 or column + 1
            out[#out + 1] = c
        end
    end
    return table.concat(out)
end)

M.format = str_format.format
M.format_map = function(s, args, kwargs)
    if kwargs then errors.raise("TypeError", "format_map() takes no keyword arguments") end
    if #args ~= 1 then errors.raise("TypeError", "format_map() takes exactly one argument (%d given)", #args) end
    return str_format.format(s, {}, args[1])
end

return M
