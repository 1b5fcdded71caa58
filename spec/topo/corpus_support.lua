-- SPDX-License-Identifier: Apache-2.0
--- Find the corpus of topologies in the shared folder, and name devices as its answers do.
local sys = require("tpl.core").sys

local M = {}

--- The folder of the corpus, or nil where there is none.
function M.folder()
  local path = (os.getenv("TPL_SHARED") or "../shared") .. "/data/topologies"
  return sys.is_dir(path) and path or nil
end

--- List the files of the corpus, the index left out.
function M.files()
  local out = {}
  for _, name in ipairs(M.folder() and sys.list(M.folder()) or {}) do
    if name ~= "INDEX.md" then out[#out + 1] = name end
  end
  table.sort(out)
  return out
end

--- Give the uid of the GPU that an answer means: its index, or a part of its PCI address.
function M.uid(t, name)
  local found
  for _, d in ipairs(t.devices) do
    if d.kind == "gpu" then
      local is = type(name) == "number" and d.index == name or type(name) == "string" and d.pci ~= nil and d.pci:find(name, 1, true) ~= nil
      if is then
        assert(found == nil, "two GPUs answer to " .. tostring(name))
        found = d.uid
      end
    end
  end
  return assert(found, "no GPU answers to " .. tostring(name))
end

--- Write a set of uids as one text, in an order of its own.
function M.set(uids)
  local copy = { unpack(uids) }
  table.sort(copy)
  return table.concat(copy, " ")
end

--- Write the set that an answer means.
function M.named_set(t, names)
  local uids = {}
  for i, name in ipairs(names) do uids[i] = M.uid(t, name) end
  return M.set(uids)
end

--- Write lists of sets in sorted order.
function M.sets(list)
  local out = {}
  for i, uids in ipairs(list) do out[i] = M.set(uids) end
  table.sort(out)
  return out
end

function M.named_sets(t, list)
  local out = {}
  for i, names in ipairs(list) do out[i] = M.named_set(t, names) end
  table.sort(out)
  return out
end

return M
