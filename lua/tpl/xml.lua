-- SPDX-License-Identifier: Apache-2.0
--- Read XML files of others (NCCL topologies, lstopo) as plain tables, broken ones as far as they go (core/bind/l_xml.c).
-- Nothing outside the text is read, entity declarations are refused.
local core = require("tpl.core").xml
local err = require("tpl.err")

local M = {}

--- An element; its children (elements only) are the items 1..n.
---@class tpl.XmlNode
---@field tag string
---@field attr table<string, string>
---@field line integer    from 1
---@field text string?    text directly in the element, pieces joined; nil where it is blank

--- Read a text. A malformed one gives both: what came before the fault (nil if nothing did), and the error.
---@param text string
---@param options {where: string?}?   where: the file's name, for messages
---@return tpl.XmlNode? root
---@return tpl.Err? err               with the field `line`
function M.decode(text, options)
  local root, message, code, where, line = core.decode(text, options)
  if not message then return root end
  local e = err.from_c(message, code, where)
  e.line = line
  return root, e
end

--- Iterate over the children that have a tag.
---@param node tpl.XmlNode
---@param tag string
---@return fun(): tpl.XmlNode?
function M.each(node, tag)
  local i = 0
  return function()
    repeat i = i + 1 until not node[i] or node[i].tag == tag
    return node[i]
  end
end

return M
