-- SPDX-License-Identifier: Apache-2.0
--- The Lua side of tpl.template: arguments, errors, budgets. Expected values are worked out by hand.
local json = require("tpl.json")
local template = require("tpl.template")

local function fails(code, source, vars, opts)
  local got, err = template.snippet(source, vars, opts)
  assert.is_nil(got)
  assert.equal(code, err.code)
  return err
end

describe("tpl.template.compile", function()
  it("gives code, message and line of a syntax error", function()
    local got, err = template.compile("a\n{% if x %}\n{{ 1 + }}")
    assert.is_nil(got)
    assert.same({ "TemplateSyntaxError", "unexpected 'end of print statement'", 3 }, { err.code, err.message, err.line })
  end)

  it("gives a template that renders again and again", function()
    local t = assert(template.compile("{% for x in l %}{{ x }}{% endfor %}{% set l = 1 %}"))
    assert.equal("12", t:render({ l = { 1, 2 } }))
    assert.equal("ab", t:render({ l = { "a", "b" } }))
  end)

  it("survives an error in a render", function()
    local t = assert(template.compile("{% macro f(n) %}{{ 1 // n }}{% endmacro %}{{ f(n) }}"))
    local got, err = t:render({ n = 0 })
    assert.is_nil(got)
    assert.equal("ZeroDivisionError", err.code)
    assert.equal("1", t:render({ n = 1 }))
  end)

  it("names the line of an error at run time", function()
    assert.equal(3, fails("UndefinedError", "a\n\n{{ x.y }}\n").line)
  end)
end)

describe("values given to a template", function()
  it("keep ints, floats, null, key order and embedded NUL of tpl.json", function()
    local vars = { v = assert(json.decode('{"b":1,"a":[1.0,null,true,"\\u0000"],"c":{}}', { typed = true })) }
    assert.equal("{'b': 1, 'a': [1.0, None, True, '\\x00'], 'c': {}}", template.snippet("{{ v }}", vars))
  end)

  it("may be plain Lua tables: lists, and dicts with sorted keys", function()
    assert.equal("[{'a': 1, 'b': 2.5}]", template.snippet("{{ v }}", { v = { { b = 2.5, a = 1 } } }))
  end)

  it("are refused when they are functions or contain themselves", function()
    fails("TypeError", "{{ v }}", { v = print })
    local t = {}
    t.t = t
    fails("RecursionError", "{{ v }}", { v = t })
  end)

  it("keep integers beyond 2^53 that arrive as text", function()
    local big = setmetatable({ text = "12345678901234567890" }, { __name = "json.int" })
    assert.equal("12345678901234567891", template.snippet("{{ v + 1 }}", { v = big }))
  end)
end)

describe("tpl.template.chat", function()
  local messages = { { role = "user", content = "Hi" } }

  it("renders the built-in ChatML template", function()
    local prompt = template.chat(template.builtin.chatml, { messages = messages, add_generation_prompt = true })
    assert.equal("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", prompt)
  end)

  it("gives every *_token option and the kwargs to the template", function()
    local prompt = template.chat("{{ bos_token }}{{ pad_token }}{{ mood }}{{ tools }}{{ documents }}",
      { messages = messages, bos_token = "B", pad_token = "P", kwargs = { mood = "M" } })
    assert.equal("BPMNoneNone", prompt)
  end)

  it("does not let kwargs replace the conversation", function()
    for _, name in ipairs({ "messages", "tools", "add_generation_prompt", "continue_final_message" }) do
      local got, err = template.chat("x", { messages = messages, kwargs = { [name] = "y" } })
      assert.is_nil(got)
      assert.equal("TypeError", err.code)
    end
  end)

  it("leaves the caller's messages as they are", function()
    local mine = { { role = "assistant", content = "So", thinking = "t" } }
    local prompt = template.chat("{{ messages[0].content }}{{ messages[0].reasoning_content }}",
      { messages = mine, continue_final_message = true })
    assert.equal("So", prompt)
    assert.same({ { role = "assistant", content = "So", thinking = "t" } }, mine)
  end)

  it("refuses a generation prompt together with a message to continue", function()
    local _, err = template.chat("x", { messages = messages, add_generation_prompt = true, continue_final_message = true })
    assert.equal("ValueError", err.code)
  end)

  it("refuses a clock that is no time", function()
    local _, err = template.chat("x", { messages = messages, now = "yesterday" })
    assert.equal("ValueError", err.code)
  end)

  it("uses the machine's clock when none is given", function()
    local before, prompt = os.date("%Y-%m-%d"), template.chat("{{ strftime_now('%Y-%m-%d') }}", { messages = messages })
    assert.is_true(prompt == before or prompt == os.date("%Y-%m-%d"))
  end)
end)

describe("a hostile template", function()
  -- facts/reliability.md B5: load error or refusal in under 100 ms; the limit here leaves room for slow machines.
  local function refused(code, source)
    local start = os.clock()
    local err = fails(code, source)
    assert.is_true(os.clock() - start < 1, "took too long")
    return err
  end

  it("cannot reach internals", function()
    refused("SecurityError", "{{ ''.__class__.__mro__ }}")
    refused("SecurityError", "{{ '{0.__class__.__mro__}'.format('') }}")
    refused("SecurityError", "{{ [].append(1) }}")
    refused("SecurityError", "{% set n = namespace(__x=1) %}")
    fails("UndefinedError", "{{ os.execute('true') }}")
    fails("UndefinedError", "{{ ''.string.rep }}")
  end)

  it("cannot loop or recurse without end", function()
    refused("TimeoutError", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}")
    refused("RecursionError", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")
    refused("RecursionError", "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}")
  end)

  it("cannot fill the memory", function()
    refused("MemoryError", "{{ 'x' * 1000000000 }}")
    refused("MemoryError", "{{ [0] * 1000000000 }}")
    refused("MemoryError", "{{ 9 ** 99999999 }}")
    refused("MemoryError", "{{ '%1000000000d' % 1 }}")
    refused("MemoryError", "{{ ('%(a)s' * 100000) % {'a': 'x' * 1000000} }}")
    refused("MemoryError", "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}")
    refused("TimeoutError", "{% set n = namespace(s=[1]) %}{% for a in range(60) %}{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}")
    refused("TimeoutError", "{% set n = namespace(s=(1,)) %}{% for a in range(60) %}{% set n.s = (n.s, n.s) %}{% endfor %}{{ {n.s: 1} }}")
  end)

  it("cannot exhaust the parser", function()
    refused("TemplateSyntaxError", "{{ " .. ("("):rep(100000) .. " }}")
    refused("TemplateSyntaxError", "{{ " .. ("not "):rep(100000) .. "1 }}")
    refused("TemplateSyntaxError", ("{% if 1 %}"):rep(50000))
    refused("TemplateSyntaxError", ("x"):rep(1024 * 1024))
    refused("RecursionError", "{{ 1" .. (" + 1"):rep(30000) .. " }}")
  end)

  it("obeys the limits of its caller", function()
    local opts = { limits = { steps = 50, output = 100, depth = 3 } }
    fails("TimeoutError", "{% for a in range(60) %}{% endfor %}", {}, opts)
    fails("MemoryError", "{% for a in range(12) %}xxxxxxxxxx{% endfor %}", {}, opts)
    fails("RecursionError", "{% macro f(n) %}{{ f(n - 1) if n }}{% endmacro %}{{ f(4) }}", {}, opts)
    assert.equal("ok", template.snippet("{% macro f(n) %}{{ f(n - 1) if n else 'ok' }}{% endmacro %}{{ f(2) }}", {}, opts))
  end)

  it("does not starve a long conversation", function()
    local messages = {}
    for i = 1, 2000 do messages[i] = { role = "user", content = ("word é "):rep(100) } end
    local prompt, err = template.chat("{% for m in messages %}{{ m.content | trim | upper }}{% endfor %}", { messages = messages })
    assert.is_nil(err)
    assert.equal(2000 * (100 * 8 - 1), #prompt)
  end)
end)
