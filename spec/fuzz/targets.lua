-- SPDX-License-Identifier: Apache-2.0
--- The targets whose reader is Lua (spec/fuzz/target.h). Each takes the bytes of a file, or its path, and gives nothing when it was
--- accepted, else the status, message, place and hint of the refusal. What is no clear refusal is raised.
local config = require("tpl.config")
local err = require("tpl.err")
local json = require("tpl.core").json
local template = require("tpl.template")
local tokenizer = require("tpl.tokenizer")
local util = require("tpl.util")
local yaml = require("tpl.yaml")

local M = {}

--- Give a refusal back, raise anything else: the only codes that lead to exit 6.
local function refusal(e)
  if e.code ~= "format" and e.code ~= "unsupported" then error(("code %s: %s\n%s"):format(e.code, tostring(e), e.traceback or "")) end
  if e.exit ~= 6 then error(("exit %s: %s"):format(e.exit, tostring(e))) end
  if e.message:find("%c") then error("more than one line: " .. e.message) end
  return e.code, e.message, e.where, e.hint
end

--- Open a checkpoint file as a model and as a tokenizer.
function M.model(path)
  local model, e = config.open { path = path, kind = "file" }
  if not model then return refusal(e) end
  if model.checkpoint then model.checkpoint:close() end
  if not model.tokenizer then return end
  local t, message, code, where, hint = tokenizer.open(path)
  if not t then return refusal(err.from_c(message, code, where, hint)) end
  t.core:close()
end

--- What is decoded and encoded again must read back as the same text.
function M.json(text)
  local value, message, code, where = json.decode(text, { where = "x.json" })
  if value == nil then return refusal(err.from_c(message, code, where)) end
  local once = json.encode(value)
  local back, wrong = json.decode(once)
  if back == nil then error("encoded, it no longer reads: " .. tostring(wrong)) end -- `false` is a value
  local again = json.encode(back)
  if once ~= again then error("encoded twice, differently: " .. once:sub(1, 200) .. " and " .. again:sub(1, 200)) end
end

--- What is read is written, and reads back as the same value; lines of paths are found or not.
function M.yaml(text)
  local docs, e = yaml.decode_all(text, { where = "x.yaml" })
  if not docs then return refusal(e) end
  yaml.line(text, "a.b[1].c")
  for _, value in ipairs(docs) do
    for _, options in ipairs { {}, { flow = true } } do
      local again, wrong = yaml.decode(yaml.encode(value, options), { depth = 512 })
      if wrong then error("written, it no longer reads: " .. tostring(wrong)) end
      if json.encode(value, { sort_keys = true }) ~= json.encode(again, { sort_keys = true }) then error("written and read, it is another value") end
    end
  end
end

--- Read a topology by the importer that takes it; what came of it is a record, and reads back as one.
function M.topology(text)
  local record = require("tpl.topo.import.record")
  local reader = record
  for _, name in ipairs { "nccl_xml", "hwloc_xml" } do
    local importer = require("tpl.topo.import." .. name)
    if importer.detect(text) then reader = importer break end
  end
  local r, e = err.try(reader.read, text, "x")
  if not r then return refusal(e) end
  local merged = require("tpl.topo.merge").merge { r, r }
  if #merged.devices ~= #r.devices then error("merged with itself, a record has other devices") end
  local again, wrong = err.try(record.read, yaml.encode(r, { flow = true }), "x")
  if not again then error("the record is no record: " .. tostring(wrong)) end
  if not util.same(r.devices, again.devices) or not util.same(r.links, again.links) then error("the record reads back as another one") end
end

--- Read a config.json, and the same text as the generation_config.json beside a good one.
function M.config(text)
  local sys = require("tpl.core").sys
  local dir = M.folder
  if not dir then
    dir = os.tmpname()
    os.remove(dir)
    assert(sys.mkdir_p(dir))
    M.folder = dir
  end
  local function write(name, s)
    local f = assert(io.open(dir .. "/" .. name, "wb"))
    f:write(s)
    f:close()
  end
  write("config.json", M.good_config)
  write("generation_config.json", text)
  local model, e = err.try(config.from_hf, dir)
  if not model then refusal(e) end
  os.remove(dir .. "/generation_config.json")
  write("config.json", text)
  model, e = err.try(config.from_hf, dir)
  os.remove(dir .. "/config.json")
  if not model then return refusal(e) end
end

M.good_config = [[{"architectures":["LlamaForCausalLM"],"vocab_size":32,"hidden_size":8,"intermediate_size":16,"num_hidden_layers":2,
"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64,"rms_norm_eps":1e-5,"eos_token_id":2}]]

-- Small budgets, so that every input is fast; a template that runs out of them gets an error as from any other budget.
local limits = { steps = 20000, output = 256 * 1024 }
local messages = json.decode([==[[{"role":"system","content":"Be short."},{"role":"user","content":"Hi <b>"},
{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"a":[1,2.5,"x"]}}}]},
{"role":"tool","content":[{"type":"text","text":"12"}]}]]==], { typed = true })
local question = json.decode([==[[{"role":"user","content":"Hi <b>"}]]==])
local tools = json.decode([==[[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{}}}}}]]==])

-- Python's exception classes that a template of a stranger may lead to; InternalError would be ours.
local classes = {}
for name in ([[TemplateSyntaxError TemplateAssertionError TemplateRuntimeError UndefinedError SecurityError FilterArgumentError TypeError
  ValueError KeyError IndexError AttributeError ZeroDivisionError OverflowError MemoryError TimeoutError RecursionError TemplateError
  LookupError UnicodeEncodeError UnicodeDecodeError NotImplementedError AssertionError StopIteration TemplateNotFound Exception]]):gmatch("%w+") do
  classes[name] = true
end

local function check(text, e)
  if text then
    if #text > 4 * limits.output then error("the text has " .. #text .. " bytes") end
    return
  end
  if not classes[e.code] then error(("%s: %s"):format(e.code, e.message)) end
  return "format", e.message ~= "" and e.message or e.code, "template:" .. (e.line or 0)
end

local function render(compiled, conversation, given)
  return template.chat(compiled, {
    messages = conversation, tools = given, add_generation_prompt = true, bos_token = "<s>", eos_token = "</s>", now = "2026-01-02T03:04:05",
  })
end

--- Compile a template and render a question with it, and a longer conversation.
function M.template(source)
  local compiled, e = template.compile(source, { limits = limits })
  if not compiled then return check(nil, e) end
  check(render(compiled, messages, tools))
  return check(render(compiled, question))
end

return M
