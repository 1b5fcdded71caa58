-- SPDX-License-Identifier: Apache-2.0
--- Decide whether a device may be part of a placement, and say why not: MIG, lost, fabric, memory repairs.
-- Rules after facts/topology.md sections 2 and 11. Neutral where a fact is unknown: "no fabric" is not "broken fabric".
local M = {}

local function lower(x) return type(x) == "string" and x:lower():gsub("[_%-]", " ") or nil end

local function says(x, word) return type(x) == "string" and lower(x):find(word, 1, true) ~= nil end

local no_answer = { ["n/a"] = true, ["not supported"] = true, ["unknown"] = true, [""] = true }

local function known(x)
  x = lower(x)
  return x and not no_answer[x] and x or nil
end

-- Xid numbers after which a GPU needs a reset or is gone (NVIDIA's Xid catalogue: docs.nvidia.com/deploy/xid-errors).
local fatal_xids = {
  [48] = { "reset_required", "double bit ECC error" }, [64] = { "reset_required", "row remapping failed" },
  [79] = { "lost", "the GPU has fallen off the bus" }, [95] = { "reset_required", "uncontained ECC error" },
  [119] = { "reset_required", "the GPU's system processor timed out" }, [120] = { "reset_required", "the GPU's system processor failed" },
}

local function mig(device, add)
  local facts = device.mig
  if type(facts) ~= "table" or device.kind == "mig" then return end
  local mode, pending = lower(facts.mode), known(facts.pending)
  if mode == "enabled" then mode = "on" elseif mode == "disabled" then mode = "off" end
  if pending == "enabled" then pending = "on" elseif pending == "disabled" then pending = "off" end
  if mode == "on" then add("mig_on", "MIG is on: the card is cut into slices, which have no peer access") end
  if pending and mode and pending ~= mode then
    add("mig_pending", ("MIG is %s and will be %s after a reset"):format(mode, pending))
  end
end

local function fabric(device, add)
  local facts = device.fabric
  if type(facts) ~= "table" then return end
  local state, status = known(facts.state), known(facts.status)
  if not state then return end
  if state ~= "completed" then
    add("fabric_not_ready", ("the NVLink fabric is '%s', not completed"):format(facts.state))
    return
  end
  if says(status, "insufficient resources") or says(facts.health, "insufficient resources") then
    add("fabric_insufficient_resources", "the NVLink fabric says Insufficient Resources")
  elseif status and status ~= "success" and status ~= "0" then
    add("fabric_failed", ("the NVLink fabric's status is '%s'"):format(facts.status))
  elseif says(facts.health, "unhealthy") then
    add("fabric_unhealthy", "the NVLink fabric says that this GPU is unhealthy")
  end
end

local function true_or_pending(x) return x == true or says(x, "pending") or says(x, "yes") or (type(x) == "number" and x > 0) end

local function health(device, add)
  local facts = device.health
  if type(facts) ~= "table" then return end
  local xids = type(facts.xid) == "table" and facts.xid or { facts.xid }
  for _, xid in ipairs(xids) do
    local fatal = fatal_xids[tonumber(xid)]
    if fatal then add(fatal[1], ("Xid %d: %s"):format(tonumber(xid), fatal[2])) end
  end
  if says(facts.state, "lost") or facts.lost == true then add("lost", "the GPU is lost") end
  if says(facts.state, "reset") or facts.reset_required == true then add("reset_required", "the GPU needs a reset") end
  local rows = facts.remapped
  if type(rows) == "table" then
    if true_or_pending(rows.pending) then add("remap_pending", "remapped memory rows wait for a reset") end
    if rows.failure == true or says(rows.failure, "yes") then add("remap_failed", "remapping memory rows failed: the card has to be replaced") end
  elseif says(rows, "pending") then
    add("remap_pending", "remapped memory rows wait for a reset")
  elseif says(rows, "fail") then
    add("remap_failed", "remapping memory rows failed: the card has to be replaced")
  end
end

--- Set `usable` and `why_not` of a device. Reasons that the record already gives are kept.
---@param device table
function M.judge(device)
  local reasons, seen = {}, {}
  local function add(code, message)
    if seen[code] then return end
    seen[code] = true
    reasons[#reasons + 1] = { code = code, message = message }
  end
  for _, given in ipairs(type(device.why_not) == "table" and device.why_not or {}) do
    add(given.code or "stated", given.message or given.code or "stated by the record")
  end
  mig(device, add)
  fabric(device, add)
  health(device, add)
  if device.usable == false and #reasons == 0 then add("stated", "the record says that it is not usable") end
  device.usable, device.why_not = #reasons == 0, reasons
end

local of_mig = { mig_on = true, mig_pending = true }

--- Judge all devices of a record: a MIG slice also has the faults of its card.
---@param devices table[]
function M.judge_all(devices)
  local by_uid = {}
  for _, d in ipairs(devices) do
    M.judge(d)
    by_uid[d.uid] = d
  end
  for _, d in ipairs(devices) do
    local parent = d.kind == "mig" and d.mig and by_uid[d.mig.parent]
    for _, reason in ipairs(parent and d.usable and parent.why_not or {}) do
      if not of_mig[reason.code] then d.why_not[#d.why_not + 1] = { code = reason.code, message = "its card: " .. reason.message } end
    end
    if d.why_not[1] then d.usable = false end
  end
end

return M
