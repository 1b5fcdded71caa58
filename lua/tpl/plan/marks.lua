-- SPDX-License-Identifier: Apache-2.0
--- Write placements the way people read them: [tok@dp,kvh@tp,grp,hd], [tok,embd] P(tp), S(kvh).
--- A placement is axis -> {k="S", dim=} or {k="P", op="sum"|"lse"}; an axis that is not named holds the whole.
local M = {}

--- List the axes on which a placement splits a dim, in mesh order.
function M.axes_of(mesh, pl, dim)
  local out = {}
  for _, a in ipairs(mesh.axes) do
    if pl[a] and pl[a].dim == dim then out[#out + 1] = a end
  end
  return out
end

--- Write one axis of a placement: R, S(kvh), P or P(lse).
function M.word(p)
  if not p then return "R" end
  if p.k == "S" then return "S(" .. p.dim .. ")" end
  return p.op == "sum" and "P" or "P(" .. p.op .. ")"
end

--- Write dims with their placement.
---@param mesh tpl.Mesh
---@param dims string[]
---@param pl table
function M.show(mesh, dims, pl)
  local shown, partial = {}, {}
  for i, d in ipairs(dims) do
    local axes = M.axes_of(mesh, pl, d)
    shown[i] = d .. (#axes > 0 and "@" .. table.concat(axes, "+") or "")
  end
  for _, a in ipairs(mesh.axes) do
    local p = pl[a]
    if p and p.k == "P" then partial[#partial + 1] = (p.op == "sum" and "" or p.op .. ":") .. a end
  end
  return "[" .. table.concat(shown, ",") .. "]" .. (#partial > 0 and " P(" .. table.concat(partial, ",") .. ")" or "")
end

return M
