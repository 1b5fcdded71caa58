-- SPDX-License-Identifier: Apache-2.0
--- Prepares the variables of a chat template, and finishes the text, as render_jinja_template of
--- transformers does: reasoning fields under all their names, and the mark by which the text is cut
--- when the final message is to be continued.
local errors = require("tpl.jinja.errors")
local text = require("tpl.jinja.text")
local values = require("tpl.jinja.values")
local ops = require("tpl.jinja.ops")
local convert = require("tpl.jinja.convert")

local M = {}

local MARK = "CONTINUE_FINAL_MESSAGE_TAG "
local BARE_MARK = "CONTINUE_FINAL_MESSAGE_TAG"

local reasoning_fields = { "reasoning_content", "thinking", "reasoning" }

-- Names that the request may not set through kwargs.
local reserved = { messages = true, tools = true, add_generation_prompt = true, continue_final_message = true }

local function field(message, name)
  local v = values.dict_get(message, name)
  if v == values.none then return nil end
  return v
end

-- {"thinking": reasoning, **message, "reasoning_content": reasoning}
local function with_reasoning(message)
  local reasoning
  for _, name in ipairs(reasoning_fields) do
    reasoning = reasoning or field(message, name)
  end
  if reasoning == nil then return message end
  local out = values.dict()
  values.dict_set(out, "thinking", reasoning)
  for i = 1, message.n do values.dict_set(out, message.keys[i], message.vals[i]) end
  values.dict_set(out, "reasoning_content", reasoning)
  return out
end

local function convert_messages(given)
  local messages = convert.value(given)
  if not values.is_list(messages) then
    -- An empty Lua table without a metatable reads as an object.
    if values.is_dict(messages) and messages.n == 0 then return values.list({}) end
    errors.raise("TypeError", "messages must be a list, not %s", values.kind(messages))
  end
  for i = 1, #messages do
    if not values.is_dict(messages[i]) then
      errors.raise("TypeError", "Chat messages should be dicts, dataclasses or pydantic models, but got %s.",
        values.repr(messages[i]))
    end
    messages[i] = with_reasoning(messages[i])
  end
  return messages
end

-- Fields of the message that get the mark: all copies of the reasoning, or the one field.
local function fields_to_mark(message, name, value)
  local is_reasoning = name == "reasoning_content" or name == "thinking" or name == "reasoning"
  if not is_reasoning then return { name } end
  local out = {}
  for _, other in ipairs(reasoning_fields) do
    if values.dict_get(message, other) == value then out[#out + 1] = other end
  end
  return out
end

local function check_template_reads(source, fields, name)
  for _, f in ipairs(fields) do
    if source:find(f, 1, true) then return end
  end
  errors.raise("ValueError", 'continue_final_message is set to "%s" but this is not an accepted field in the' ..
    " chat_template", name)
end

-- Mark the last text part of a message made of parts; gives the text before the mark.
local function mark_last_part(parts)
  for i = #parts, 1, -1 do
    local part = parts[i]
    local content = values.is_dict(part) and values.dict_get(part, "text")
    if content then
      values.dict_set(part, "text", ops.add(content, MARK))
      return content
    end
  end
  return errors.raise("ValueError",
    "continue_final_message is set but we could not find any text to continue in the final message!")
end

--- Put the mark into the final message; gives the text to continue.
local function mark_final(source, messages, which)
  local name = type(which) == "string" and which or "content"
  local last = messages[#messages]
  if not last then
    errors.raise("ValueError", "continue_final_message is set but the conversation is empty!")
  end
  local final = field(last, name)
  if final == nil then
    errors.raise("ValueError", 'continue_final_message is set but the final message has no "%s" to continue!', name)
  end
  local fields = fields_to_mark(last, name, final)
  check_template_reads(source, fields, name)
  if values.is_list(final) then return mark_last_part(final) end
  for _, f in ipairs(fields) do values.dict_set(last, f, ops.add(values.dict_get(last, f), MARK)) end
  return final
end

-- Byte position of the last occurrence of `part`.
local function last_position(s, part)
  local p, at = s:find(part, 1, true), nil
  while p do
    at = p
    p = s:find(part, p + 1, true)
  end
  return at
end

--- Cut the rendered text at the mark. A template that trims the content leaves the bare mark; then
--- the cut text is trimmed too.
local function cut_at_mark(rendered, final)
  local at = last_position(rendered, BARE_MARK)
  if not at or not rendered:find(text.strip(final, nil, true, true), 1, true) then
    return nil, errors.new("ValueError", "continue_final_message is set but the final message does not appear in" ..
      " the chat after applying the chat template! This can happen if the chat template deletes portions of the" ..
      " final message. Please verify the chat template and final message in your chat to ensure they are" ..
      " compatible.")
  end
  local before = rendered:sub(1, at - 1)
  if rendered:sub(at, at + #MARK - 1) == MARK then return before end
  return (text.strip(before, nil, false, true))
end

local function is_set(v)
  return v ~= nil and v ~= false and type(v) ~= "userdata"
end

local function optional_list(v)
  local out = convert.value(v)
  if values.is_dict(out) and out.n == 0 then return values.list({}) end
  return out
end

-- Every other string option (bos_token, pad_token, ...) is a variable of that name.
local function add_tokens(vars, opts)
  for name, v in pairs(opts) do
    if type(name) == "string" and name:find("_token$") and type(v) == "string" then vars[name] = v end
  end
end

local function add_kwargs(vars, kwargs)
  if not is_set(kwargs) then return end
  for name, v in pairs(kwargs) do
    if reserved[name] then
      errors.raise("TypeError", "render() got multiple values for keyword argument '%s'", name)
    end
    vars[name] = name == "documents" and optional_list(v) or convert.value(v)
  end
end

--- Variables of a render and fn(text) that finishes it; raises template errors.
function M.prepare(source, opts)
  local generation, continue = is_set(opts.add_generation_prompt), is_set(opts.continue_final_message)
  if generation and continue then
    errors.raise("ValueError", "continue_final_message and add_generation_prompt are not compatible. Use" ..
      " continue_final_message when you want the model to continue the final message, and" ..
      " add_generation_prompt when you want to add a header that will prompt it to start a new assistant" ..
      " message instead.")
  end
  local vars = {
    messages = convert_messages(opts.messages), tools = optional_list(opts.tools),
    documents = optional_list(opts.documents), add_generation_prompt = generation,
  }
  add_tokens(vars, opts)
  add_kwargs(vars, opts.kwargs)
  if not continue then
    return vars, function(rendered) return rendered end
  end
  local final = mark_final(source, vars.messages, opts.continue_final_message)
  local final_text = values.text(final)
  if not final_text then
    errors.raise("TypeError", "the final message's content to continue must be text, not %s", values.kind(final))
  end
  return vars, function(rendered) return cut_at_mark(rendered, final_text) end
end

return M
