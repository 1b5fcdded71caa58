-- SPDX-License-Identifier: Apache-2.0
--- tpl.template.chat on whole chat templates. Expected values: transformers 5.24 for the models' templates in ../shared, Python's
--- Jinja2 3.1.6 for the project's own (spec/fixtures/make/templates.py).
local fixtures = require("spec.text.fixtures")
local template = require("tpl.template")

-- Render every case of a template; `common` holds clock and special tokens.
local function check(source, cases, common)
  local compiled = assert(template.compile(source))
  return fixtures.mismatches(cases, function(case)
    return template.chat(compiled, {
      messages = case.messages, tools = case.tools, add_generation_prompt = case.add_generation_prompt,
      continue_final_message = case.continue_final_message, kwargs = case.kwargs,
      now = common.now, bos_token = common.bos_token, eos_token = common.eos_token,
    })
  end, function(case) return case.name end)
end

describe("tpl.template.chat", function()
  local common = { now = "2024-02-29T17:04:09", bos_token = "<s>", eos_token = "</s>" }
  for _, name in ipairs({ "chatml", "parts", "schema", "strict", "turns" }) do
    local base = "spec/fixtures/template/" .. name
    local cases = fixtures.rows(fixtures.read(base .. ".cases.jsonl"))
    it(("renders the %d chats of %s.jinja as Jinja2 does"):format(#cases, name), function()
      assert.equal("", check(fixtures.read(base .. ".jinja"), cases, common))
    end)
  end
end)

describe("tpl.template.chat on the shared corpus", function()
  local index = fixtures.shared("templates/index.json")
  if not index then
    pending("the shared fixtures are absent")
    return
  end
  index = fixtures.decode(index)
  for _, name in ipairs(getmetatable(index).keys) do
    local file = fixtures.decode(fixtures.shared("templates/" .. name .. ".cases.json"))
    it(("renders the %d chats of %s as transformers does"):format(#file.cases, name), function()
      assert.equal("", check(fixtures.shared("templates/" .. name .. ".jinja"), file.cases, file))
    end)
  end
end)
