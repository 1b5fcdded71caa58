-- SPDX-License-Identifier: Apache-2.0
--- The row commands `tpl tokenize` and `tpl detokenize`: they need a tokenizer, no tensors.
local err = require("tpl.err")
local json = require("tpl.json")
local out = require("tpl.cli.out")
local rows = require("tpl.cli.rows")
local text = require("tpl.text")

local M = {}

local function is_set(x) return x ~= nil and x ~= json.null end

--- Open the tokenizer that --model or --file names.
local function open(ctx)
  local opts = ctx.args.opts
  if (opts.model == nil) == (opts.file == nil) then
    err.throw { code = "usage", where = "tpl " .. ctx.command.name, message = "needs one of --model M and --file FILE" }
  end
  return text.open_tokenizer(opts.file or text.of_model(opts.model))
end

local function bad(message) err.throw { code = "bad_row", message = message } end

--- Read an optional boolean of a row.
local function flag(row, name, default)
  if not is_set(row[name]) then return default end
  if type(row[name]) ~= "boolean" then bad(name .. " must be true or false") end
  return row[name]
end

--- Turn "48656c6c6f" into bytes.
local function from_hex(hex)
  if type(hex) ~= "string" or #hex % 2 ~= 0 or hex:find("%X") then bad("bytes_hex must be an even number of hex digits") end
  return (hex:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

local function input_text(row)
  if is_set(row.text) then
    if type(row.text) ~= "string" then bad("text must be a string") end
    return row.text
  end
  if is_set(row.bytes_hex) then return from_hex(row.bytes_hex) end
  bad("the row has neither text nor bytes_hex")
end

local function tokenize(tokenizer)
  return function(row)
    local ids, message, code = tokenizer:encode(input_text(row), { special = flag(row, "special", true), bos = flag(row, "bos", true) })
    if not ids then err.throw { code = (code or "format"):lower(), message = message } end
    return { "ids" }, { ids = out.array(ids) }
  end
end

local function count_of(row, name, most)
  local n = row[name]
  if not is_set(n) then return 0 end
  if type(n) ~= "number" or n ~= math.floor(n) or n < 0 or n > most then
    bad(string.format("%s must be a whole number from 0 to %d", name, most))
  end
  return n
end

local function detokenize(tokenizer)
  return function(row)
    if not is_set(row.ids) then bad("the row has no ids") end
    local ids = text.check_ids(row.ids)
    local n_prompt = count_of(row, "prompt", #ids)
    local stream = tokenizer:stream { skip_special = flag(row, "skip_special", true), prompt = n_prompt }
    local chunks = {}
    for i, id in ipairs(ids) do
      local chunk, message = stream:push(id)
      if not chunk then bad(message) end
      if i > n_prompt then chunks[#chunks + 1] = chunk end
    end
    local tail = stream:flush()
    return { "text", "chunks", "tail" }, { text = table.concat(chunks) .. tail, chunks = out.array(chunks), tail = tail }
  end
end

function M.run(ctx)
  local tokenizer = open(ctx)
  local fn = ctx.command.name == "tokenize" and tokenize(tokenizer) or detokenize(tokenizer)
  rows.stream(ctx, fn)
  return 0
end

return M
