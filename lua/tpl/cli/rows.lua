-- SPDX-License-Identifier: Apache-2.0
--- Read rows of JSON lines and answer each with one line, in order.
-- A bad row becomes {"id","error":{"code","message"}} and the others go on. Keys that a command does not know are ignored.
local err = require("tpl.err")
local json = require("tpl.json")
local out = require("tpl.cli.out")

local M = {}

---@class tpl.Row
---@field index integer            from 0
---@field id any                   as given, json.null when absent
---@field name string              for files: the id, or the index when there is none
---@field value? table             the decoded object
---@field error? {code: string, message: string}

--- Make the error of a row.
function M.fault(code, message) return { code = code, message = message } end

--- Turn whatever a row's work raised into the error of that row.
function M.fault_of(e)
  if err.is(e) then return M.fault(e.code, (e.where and e.where ~= "" and e.where .. ": " or "") .. e.message) end
  return M.fault("internal", tostring(e))
end

--- Check an id: a string of [A-Za-z0-9._-]+ or a whole number.
local function check_id(row, id)
  if id == nil or id == json.null then return end
  row.id = id
  if type(id) == "number" and id == math.floor(id) and math.abs(id) < 2 ^ 53 then
    row.name = string.format("%d", id)
  elseif type(id) == "string" and id:find("^[A-Za-z0-9._-]+$") then
    row.name = id
  else
    row.error = M.fault("bad_id", "id must match [A-Za-z0-9._-]+")
    if type(id) ~= "string" and type(id) ~= "number" then row.id = json.null end
  end
end

--- Decode one line.
---@param line string
---@param index integer
---@param opts? {typed?: boolean}
---@return tpl.Row
function M.decode(line, index, opts)
  local row = { index = index, id = json.null, name = string.format("%d", index) }
  local value, message = json.decode(line, opts)
  if value == nil then
    row.error = M.fault("bad_json", "the line is no valid JSON: " .. tostring(message))
  elseif type(value) ~= "table" or getmetatable(value) == json.array_mt then
    row.error = M.fault("bad_row", "the line holds no JSON object")
  else
    row.value = value
    check_id(row, value.id)
  end
  return row
end

--- Open the input of a row command: a file's path, or "-" for stdin.
---@param path string
---@return {lines: fun(self): (fun(): string?), close: fun(self)}
function M.open(path)
  if path == "-" then return io.stdin end
  local sys = require("tpl.core").sys
  local stat, message, code = sys.stat(path)
  if not stat then err.throw(err.from_c(message, code, "--in")) end
  if stat.kind == "dir" then err.throw { code = "usage", where = "--in", message = path .. " is a folder, JSON lines are needed" } end
  local file, why = io.open(path, "rb")
  if not file then err.throw(err.from_c(why, "io", "--in")) end
  return file
end

--- Iterate over the rows of an open input; empty lines are no rows.
---@param file any
---@param opts? {typed?: boolean}
---@return fun(): tpl.Row?
function M.each(file, opts)
  local index = -1
  return function()
    while true do
      local line = file:read("*l")
      if line == nil then return nil end
      if line:find("%S") then
        index = index + 1
        return M.decode(line, index, opts)
      end
    end
  end
end

--- Read all rows.
function M.read(path, opts)
  local file, list = M.open(path), {}
  for row in M.each(file, opts) do list[#list + 1] = row end
  if file ~= io.stdin then file:close() end
  return list
end

--- Give the answer of a row that failed.
function M.error_line(row, fault)
  fault = fault or row.error
  return out.ordered({ "id", "error" }, {
    id = row.id, error = out.ordered({ "code", "message" }, { code = fault.code, message = fault.message }),
  })
end

--- Answer the rows of --in one by one with fn(row.value, row) -> keys, values.
---@param ctx tpl.cli.Context
---@param fn fun(value: table, row: tpl.Row): string[], table
---@param opts? {typed?: boolean}
function M.stream(ctx, fn, opts)
  local file = M.open(ctx.args.opts["in"])
  for row in M.each(file, opts) do
    ctx.started = true
    local keys, values
    if not row.error then
      keys, values = err.try(fn, row.value, row)
      if not keys then row.error = M.fault_of(values) end
    end
    if row.error then
      ctx.out:line(M.error_line(row))
    else
      values.id = row.id
      table.insert(keys, 1, "id")
      ctx.out:line(out.ordered(keys, values))
    end
  end
  if file ~= io.stdin then file:close() end
end

return M
