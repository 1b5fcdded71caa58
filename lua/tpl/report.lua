-- SPDX-License-Identifier: Apache-2.0
--- Write the result of `tpl plan` for people: placement, bytes per rank, KV capacity, collectives.
-- Pure: takes the JSON fields of the plan, gives lines. Sizes are in powers of 1024 and say so; unknown is "-".
local M = {}

local function is_set(x) return x ~= nil and type(x) ~= "userdata" end

--- Write a count with commas: 1,234,567.
---@param n number
function M.commas(n)
  if not is_set(n) then return "-" end
  local text = string.format("%d", n)
  local head, rest = text:match("^(-?%d%d?%d?)(%d*)$")
  while #rest % 3 ~= 0 do
    head, rest = head:sub(1, -2), head:sub(-1) .. rest
  end
  return head .. rest:gsub("%d%d%d", ",%0")
end

local units = { "B", "KiB", "MiB", "GiB", "TiB" }

--- Write a number of bytes with a binary unit: 12.3 MiB.
function M.bytes(n)
  if not is_set(n) then return "-" end
  local i = 1
  while n >= 1024 and i < #units do
    n, i = n / 1024, i + 1
  end
  return string.format(i == 1 and "%d %s" or "%.1f %s", n, units[i])
end

--- Write a count of parameters: 134.5 M.
local function short_count(n)
  if not is_set(n) then return "-" end
  for _, u in ipairs { { 1e12, "T" }, { 1e9, "B" }, { 1e6, "M" }, { 1e3, "k" } } do
    if n >= u[1] then return string.format("%.1f %s", n / u[1], u[2]) end
  end
  return string.format("%d", n)
end

local function field(t, ...)
  for _, key in ipairs { ... } do
    if not is_set(t) or type(t) ~= "table" then return nil end
    t = t[key]
  end
  return is_set(t) and t or nil
end

local function add(lines, ...) lines[#lines + 1] = string.format(...) end

--- Lay rows of texts out in columns, numbers and sizes to the right.
---@param rows string[][]
---@param left? table<integer, boolean>   columns to align left
local function columns(lines, rows, left)
  local widths = {}
  for _, row in ipairs(rows) do
    for i, text in ipairs(row) do widths[i] = math.max(widths[i] or 0, #text) end
  end
  for _, row in ipairs(rows) do
    local cells = {}
    for i, text in ipairs(row) do
      local pad = (" "):rep(widths[i] - #text)
      cells[i] = left and left[i] and text .. pad or pad .. text
    end
    lines[#lines + 1] = (("  " .. table.concat(cells, "  ")):gsub("%s+$", ""))
  end
end

local function axes_text(axes)
  local out = {}
  for i, axis in ipairs(axes or {}) do
    out[i] = axis.name .. "=" .. axis.size .. (is_set(axis.kind) and axis.kind ~= "" and axis.kind == "batch" and ":batch" or "")
  end
  return #out > 0 and table.concat(out, ",") or "one rank"
end

local function list_text(list)
  if not is_set(list) or #list == 0 then return "-" end
  if #list == 2 then return list[1] .. "," .. list[2] end
  local out, i = {}, 1
  while i <= #list do
    local j = i
    while list[j + 1] == list[j] + 1 do j = j + 1 end
    out[#out + 1] = j > i and list[i] .. "-" .. list[j] or tostring(list[i])
    i = j + 1
  end
  return table.concat(out, ",")
end

-- A UUID is told apart by its first part.
local function device_text(uid)
  uid = tostring(uid)
  return uid:match("^(.*GPU%-%x%x%x%x%x%x%x%x)%-%x+%-") or uid:match("^(.*MIG%-%x%x%x%x%x%x%x%x)%-%x+%-") or uid
end

local function short_devices(text)
  return (text:gsub("(GPU%-%x%x%x%x%x%x%x%x)%-%x+%-%x+%-%x+%-%x+", "%1"):gsub("(MIG%-%x%x%x%x%x%x%x%x)%-%x+%-%x+%-%x+%-%x+", "%1"))
end

local function coord_text(coord)
  local names, out = {}, {}
  for name in pairs(coord or {}) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do out[i] = name .. "=" .. coord[name] end
  return #out > 0 and table.concat(out, ",") or "-"
end

--- Give the bytes that a rank moves in collectives for one decoded token; those of later replicas are as the first one's.
local function comm_per_token(report, rank)
  local sum, n = 0, 0
  for _, s in ipairs(field(report, "stages") or {}) do n = n + #(field(s, "ranks") or {}) end
  if n > 0 then rank = rank % n end
  for _, c in ipairs(field(report, "collectives") or {}) do
    local bytes = field(c, "bytes", "decode")
    if not bytes then return nil end
    for _, member in ipairs(field(c, "group") or {}) do
      if member == rank then sum = sum + bytes end
    end
  end
  return sum
end

local function model_lines(lines, report)
  local model = field(report, "model") or {}
  add(lines, "model   %s, %s parameters, %s of weights (%s)", field(model, "arch") or "-", short_count(model.params),
    M.bytes(model.weight_bytes), field(model, "format") or "-")
end

local MOST_SHOWN = 4

local function choice_lines(lines, report)
  local choice = field(report, "choice")
  if not choice then return end
  add(lines, "policy  %s%s", field(choice, "policy") or "-", field(choice, "where") and " (" .. choice.where .. ")" or "")
  for _, reason in ipairs(field(choice, "reasons") or {}) do add(lines, "        %s", short_devices(tostring(reason))) end
  for i, x in ipairs(field(choice, "alternatives") or {}) do
    if i <= MOST_SHOWN then add(lines, "        instead of %s: %s", tostring(x.name), short_devices(tostring(x.why))) end
  end
  for _, x in ipairs(field(choice, "excluded") or {}) do add(lines, "        without %s: %s", device_text(x.uid), short_devices(tostring(x.why))) end
end

local function stage_lines(lines, report)
  for _, stage in ipairs(field(report, "stages") or {}) do
    local layers = field(stage, "layers") or {}
    add(lines, "stage %s layers %s-%s, %s, ranks %s", tostring(stage.i), tostring(layers[1] or "-"), tostring(layers[2] or "-"),
      axes_text(field(stage, "axes")), list_text(field(stage, "ranks")))
  end
end

local function rank_lines(lines, report)
  local rows = { { "rank", "stage", "device", "at", "cpus", "weights", "arena", "comm", "kv", "other", "total", "capacity", "stranded", "comm/token" } }
  for _, r in ipairs(field(report, "ranks") or {}) do
    local b = field(r, "bytes") or {}
    local other = (field(b, "other") or 0) + (field(b, "io") or 0)
    rows[#rows + 1] = {
      tostring(r.rank), tostring(r.stage), device_text(r.uid), coord_text(field(r, "coord")), list_text(field(r, "cpus")), M.bytes(b.weights), M.bytes(b.arena),
      M.bytes(b.comm), M.bytes(b.kv), M.bytes(other), M.bytes(b.total), M.bytes(b.capacity), M.bytes(b.stranded), M.bytes(comm_per_token(report, r.rank)),
    }
  end
  columns(lines, rows, { [3] = true, [4] = true, [5] = true })
  add(lines, "        bytes are for each rank, in powers of 1024")
end

--- Say how uneven cuts fall, where they do: "kvh 2/1", and what they cost at most.
local function share_lines(lines, report)
  local by_dim, order = {}, {}
  for _, r in ipairs(field(report, "ranks") or {}) do
    for dim, ranges in pairs(field(r, "shards") or {}) do
      local n = 0
      for _, range in ipairs(ranges) do n = n + range[2] end
      local key = tostring(r.stage) .. " " .. dim
      if not by_dim[key] then
        by_dim[key] = { stage = r.stage, dim = dim, counts = {} }
        order[#order + 1] = key
      end
      table.insert(by_dim[key].counts, n)
    end
  end
  table.sort(order)
  for _, key in ipairs(order) do
    local x, uneven = by_dim[key], false
    for _, n in ipairs(x.counts) do uneven = uneven or n ~= x.counts[1] end
    if uneven then add(lines, "uneven  stage %s: %s is cut %s", tostring(x.stage), x.dim, table.concat(x.counts, "/")) end
  end
  for _, stage in ipairs(field(report, "stages") or {}) do
    local balance = field(stage, "balance")
    if balance and balance < 0.9995 then
      add(lines, "balance stage %s: at most %.3f of an even cut's speed, since all wait for the rank with most weights", tostring(stage.i), balance)
    end
  end
end

local function collective_lines(lines, report)
  local counts, order = {}, {}
  for _, c in ipairs(field(report, "collectives") or {}) do
    local key = string.format("%s over %s", tostring(c.kind), table.concat(field(c, "axes") or {}, ","))
    if not counts[key] then order[#order + 1] = key end
    counts[key] = (counts[key] or 0) + 1
  end
  for i, key in ipairs(order) do order[i] = string.format("%d %s", counts[key], key) end
  if #order > 0 then add(lines, "comm    %s", table.concat(order, "; ")) end
end

local function kv_lines(lines, report)
  local kv = field(report, "kv")
  if not kv then return end
  add(lines, "KV cache size: %s tokens", M.commas(kv.tokens))
  if field(kv, "max_concurrency") then
    add(lines, "Maximum concurrency for %s tokens per request: %.2fx", M.commas(kv.max_len), kv.max_concurrency)
  end
  if field(kv, "limiting_rank") then add(lines, "limited by rank %d", kv.limiting_rank) end
end

local function ms(us) return us and ("%.1f ms"):format(us / 1e3) or "-" end

local function percent(x) return x and ("%.0f %%"):format(100 * x) or "-" end

local function cost_lines(lines, report)
  local cost = field(report, "cost")
  if not cost then return end
  add(lines, "time    %s to the first token, %s between tokens, %s tokens/s with all requests (%s)", ms(field(cost, "ttft_us")), ms(field(cost, "itl_us")),
    field(cost, "tok_s") and ("%.0f"):format(cost.tok_s) or "-", cost.calibrated == true and "measured rates" or "from data sheets")
  add(lines, "        bound by %s; communication %s, pipeline bubble %s, stages off by %s, %s of the roofline", tostring(field(cost, "bound") or "-"),
    percent(field(cost, "comm_share")), percent(field(cost, "bubble")), percent(field(cost, "stage_imbalance")), percent(field(cost, "roofline_share")))
end

local function env_lines(lines, report)
  for _, e in ipairs(field(report, "env") or {}) do add(lines, "env     %s=%s  (%s)", tostring(e.name), tostring(e.value), tostring(e.why)) end
end

local function fit_lines(lines, report)
  if report.fits == false then add(lines, "does not fit") end
  for _, move in ipairs(field(report, "moves") or {}) do
    add(lines, "move    %s%s", tostring(move.what), field(move, "kv_tokens_gain") and " (+" .. M.commas(move.kv_tokens_gain) .. ")" or "")
  end
end

--- Give the lines of the report.
---@param report table   fields of interface.md `tpl plan`
---@param more? {taken?: string[]}   lines that say where the layout, policy and model were found
---@return string[]
function M.lines(report, more)
  local lines = {}
  model_lines(lines, report)
  for _, text in ipairs(more and more.taken or {}) do lines[#lines + 1] = text end
  choice_lines(lines, report)
  stage_lines(lines, report)
  rank_lines(lines, report)
  share_lines(lines, report)
  collective_lines(lines, report)
  kv_lines(lines, report)
  cost_lines(lines, report)
  fit_lines(lines, report)
  env_lines(lines, report)
  if field(report, "plan_hash") then add(lines, "plan    %s", report.plan_hash) end
  return lines
end

--- Give the report as text.
function M.text(report, more)
  return table.concat(M.lines(report, more), "\n") .. "\n"
end

return M
