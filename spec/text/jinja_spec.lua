-- SPDX-License-Identifier: Apache-2.0
--- tpl.template on bare snippets. Expected values: Python's Jinja2 3.1.6, for ../shared in the environment of transformers 5.24,
--- for spec/fixtures/template in one of the same settings (spec/fixtures/make/templates.py).
local fixtures = require("spec.text.fixtures")
local template = require("tpl.template")

-- Rows by the word before the number in their id.
local function by_group(rows)
  local names, groups = {}, {}
  for _, row in ipairs(rows) do
    local name = row.id:match("^(.*)%-%d+$")
    if not groups[name] then
      groups[name] = {}
      names[#names + 1] = name
    end
    table.insert(groups[name], row)
  end
  return names, groups
end

local function check(rows, vars, now)
  return fixtures.mismatches(rows, function(row) return template.snippet(row.template, vars, { now = now }) end,
    function(row) return row.id .. " " .. row.template end)
end

describe("tpl.template.snippet", function()
  local own = "spec/fixtures/template/"
  local vars = fixtures.decode(fixtures.read(own .. "vars.json"))
  local names, groups = by_group(fixtures.rows(fixtures.read(own .. "snippets.jsonl")))
  for _, name in ipairs(names) do
    it(("answers %d snippets on %s as Jinja2 does"):format(#groups[name], name), function()
      assert.equal("", check(groups[name], vars, "2024-02-29T17:04:09"))
    end)
  end
end)

describe("tpl.template.snippet on the shared snippets", function()
  local text, vars = fixtures.shared("jinja/cases.jsonl"), fixtures.shared("jinja/vars.json")
  if not text or not vars then
    pending("the shared fixtures are absent")
    return
  end
  vars = fixtures.decode(vars)
  local names, groups = by_group(fixtures.rows(text))
  for _, name in ipairs(names) do
    it(("answers %d snippets on %s as transformers does"):format(#groups[name], name), function()
      assert.equal("", check(groups[name], vars, "2025-07-06T09:05:03"))
    end)
  end
end)
