-- SPDX-License-Identifier: Apache-2.0
-- Expected values: interface.md section 3 (row commands) and 4 (their fields).
local helper = require("cli.helper")
local json = require("tpl.json")

describe("row commands", function()
  local folder
  before_each(function() folder = helper.folder() end)
  after_each(function() helper.remove(folder) end)

  local function rows(...) return helper.write(folder .. "/in.jsonl", table.concat({ ... }, "\n") .. "\n") end

  local function keys_of(value) return getmetatable(value).keys end

  it("answer every row in order, and go on after bad ones", function()
    local engine = helper.engine()
    local path = rows('{"id":"a","ids":[1,2]}', "nonsense", '{"id":"c/d","ids":[1]}', '{"id":"e","ids":[100]}', "", '{"id":"f","ids":[7],"unknown":{}}',
      '{"id":"g","ids":[]}', "[1]", '{"id":"h"}', '{"id":"i","text":"x"}', '{"ids":[5]}')
    local r = helper.run({ "generate", "m", "--in", path }, { engine = engine })
    assert.equal(0, r.code)
    assert.equal(10, #r.lines)
    local codes, ids = {}, {}
    for i, line in ipairs(r.lines) do
      codes[i] = line.error and line.error.code or line.text
      ids[i] = line.id == json.null and "null" or line.id
    end
    assert.same({ "a", "null", "c/d", "e", "f", "g", "null", "h", "i", "null" }, ids)
    assert.same({ "t2", "bad_json", "bad_id", "bad_ids", "t7", "bad_param", "bad_row", "bad_row", "bad_row", "t5" }, codes)
    assert.equal(1, engine.closed)
  end)

  it("give the promised fields of generate", function()
    local r = helper.run { "generate", "m", "--in", rows('{"id":"a","ids":[1,2]}') }
    assert.same({ "id", "prompt_ids", "ids", "text", "finish", "ttft_us", "itl_us" }, keys_of(r.lines[1]))
    assert.same({ 1, 2 }, { r.lines[1].prompt_ids[1], r.lines[1].prompt_ids[2] })
    assert.same({ 1, 2 }, { r.lines[1].itl_us.p50, r.lines[1].itl_us.p99 })
  end)

  it("pass parameters on, with temperature 0 and what fits the context by default", function()
    local engine = helper.engine()
    helper.run({ "generate", "m", "--in", rows(
      '{"ids":[1,2]}',
      '{"ids":[1],"max_tokens":3,"temperature":0.5,"top_k":4,"top_p":0.9,"min_p":0.1,"repetition_penalty":1.2,"frequency_penalty":-1,'
        .. '"presence_penalty":1,"logit_bias":{"5":-3},"seed":9,"ignore_eos":true,"logprobs":2}') }, { engine = engine })
    local sent = engine.calls[1][2].rows
    assert.same({ 0, 62, 1, 1 }, { sent[1].temperature, sent[1].max_tokens, sent[1].top_p, sent[1].repetition_penalty })
    assert.same({ 3, 0.5, 4, 0.9, 0.1, 1.2, -1, 1, 9, true, 2 }, {
      sent[2].max_tokens, sent[2].temperature, sent[2].top_k, sent[2].top_p, sent[2].min_p, sent[2].repetition_penalty, sent[2].frequency_penalty,
      sent[2].presence_penalty, sent[2].seed, sent[2].ignore_eos, sent[2].logprobs,
    })
    assert.same({ [5] = -3 }, sent[2].logit_bias)
    assert.same({ "x" }, require("tpl.params").request({ stop = "x" }, { 1 }, {}).stop)
  end)

  it("refuse stop texts where no tokenizer can see them", function()
    local r = helper.run { "generate", "m", "--in", rows('{"ids":[1],"stop":"x"}', '{"ids":[1]}') }
    assert.equal("no_tokenizer", r.lines[1].error.code)
    assert.is_nil(r.lines[2].error)
  end)

  it("refuse parameters out of range, one row at a time", function()
    local bad = {
      '"temperature":-1', '"temperature":"x"', '"top_p":1.5', '"top_k":1.5', '"min_p":2', '"repetition_penalty":0', '"seed":-1', '"max_tokens":0',
      '"max_tokens":1.5', '"logprobs":21', '"stop":[1]', '"stop":[""]', '"stop":{"a":1}', '"ignore_eos":1', '"logit_bias":{"x":1}', '"logit_bias":{"100":1}',
      '"logit_bias":[1]', '"logit_bias":{"1":"x"}', '"ids":[1.5]', '"ids":["a"]', '"ids":5', '"ids":{"a":1}', '"ids":[-1]',
    }
    local lines = {}
    for i, text in ipairs(bad) do lines[i] = '{"id":"r' .. i .. '",' .. (text:find('"ids"') and "" or '"ids":[1],') .. text .. "}" end
    lines[#lines + 1] = '{"id":"good","ids":[1]}'
    local r = helper.run { "generate", "m", "--in", rows(unpack(lines)) }
    assert.equal(0, r.code)
    for i, text in ipairs(bad) do assert.is_not_nil(r.lines[i].error, text) end
    assert.equal("good", r.lines[#lines].id)
    assert.is_nil(r.lines[#lines].error)
  end)

  it("pass the engine's error of a row on", function()
    local engine = helper.engine { generate = function(_, opts)
      local out = {}
      for i in ipairs(opts.rows) do out[i] = i == 1 and { error = { code = "kv_full", message = "too long" } } or { ids = { 3 }, text = "", finish = "length" } end
      return out
    end }
    local r = helper.run({ "generate", "m", "--in", rows('{"id":"a","ids":[1]}', '{"id":"b","ids":[1]}') }, { engine = engine })
    assert.same({ "kv_full", 3 }, { r.lines[1].error.code, r.lines[2].ids[1] })
    assert.equal(json.null, r.lines[2].ttft_us)
    assert.equal(0, r.code)
  end)

  it("fail with one envelope line before the first row", function()
    for _, argv in ipairs { { "generate", "m", "--in", folder .. "/none.jsonl" }, { "generate", "m" }, { "score", "m", "--in", folder }, { "tokenize", "--in", "x" } } do
      local r = helper.run(argv)
      assert.equal(2, r.code)
      assert.equal(1, #r.lines)
      assert.equal("tpl." .. argv[1] .. "/1", r.lines[1].schema)
      assert.is_false(r.lines[1].ok)
    end
    local r = helper.run({ "generate", "m", "--in", rows('{"ids":[1]}') }, { make = function()
      return nil, require("tpl.err").new { code = "format", message = "broken", where = "m:8" }
    end })
    assert.same({ 6, 1, "m:8" }, { r.code, #r.lines, r.lines[1].error.where })
  end)

  it("fail with exit 1 and no envelope once rows are out", function()
    local engine = helper.engine { each_logits = function(_, opts)
      opts.file(opts.rows[1], 1)
      opts.on_row(1, { rows = 1, vocab = 2, argmax = { 0 } })
      return nil, require("tpl.err").new { code = "comm", message = "rank 1 stalled" }
    end }
    local r = helper.run({ "logits", "m", "--in", rows('{"id":"a","ids":[1]}', '{"id":"b","ids":[1]}'), "--out", folder .. "/o" }, { engine = engine })
    assert.equal(1, r.code)
    assert.equal(1, #r.lines)
    assert.equal("a", r.lines[1].id)
    assert.equal("tpl: rank 1 stalled\n", r.stderr:match("[^\n]*\n$"))
    assert.equal(1, engine.closed)
  end)

  it("score: print null first, and what the engine gives", function()
    local asked
    local engine = helper.engine { score = function(_, opts)
      asked = opts.top
      return { { logprobs = { json.null, -1 }, greedy = { false, true }, top = { {}, { { id = 4, logprob = -1 } } }, sum = -1 } }
    end }
    local r = helper.run({ "score", "m", "--in", rows('{"id":"a","ids":[1,4]}'), "--top", "1" }, { engine = engine })
    assert.equal(1, asked)
    local line = r.lines[1]
    assert.same({ "id", "ids", "logprobs", "greedy", "top", "sum" }, keys_of(line))
    assert.equal(json.null, line.logprobs[1])
    assert.same({ -1, true, 4, -1, 0 }, { line.logprobs[2], line.greedy[2], line.top[2][1].id, line.sum, #line.top[1] })
  end)

  it("logits: write the header, let the engine append, and name the file", function()
    local npy = require("tpl.npy")
    local engine = helper.engine { each_logits = function(_, opts)
      for i, row in ipairs(opts.rows) do
        local path = opts.file(row, i)
        local file = io.open(path, "ab")
        local ffi = require("ffi")
        file:write(ffi.string(ffi.new("float[200]", 1.5), 4 * 100 * #row.ids))
        file:close()
        opts.on_row(i, { rows = #row.ids, vocab = 100, argmax = { 0, 0 } })
      end
      return true
    end }
    local r = helper.run({ "logits", "m", "--in", rows('{"id":"a","ids":[1,2]}', '{"id":"a","ids":[1]}', '{"ids":[3]}'), "--out", folder .. "/o/p" }, { engine = engine })
    assert.equal(0, r.code)
    assert.same({ "id", "file", "rows", "vocab", "argmax", "plan_hash", "isa" }, keys_of(r.lines[1]))
    assert.same({ 2, 100, "p1", "fake" }, { r.lines[1].rows, r.lines[1].vocab, r.lines[1].plan_hash, r.lines[1].isa })
    assert.equal("duplicate_id", r.lines[2].error.code)
    assert.equal(folder .. "/o/p/2.npy", r.lines[3].file)
    local data, dims = npy.read(folder .. "/o/p/a.npy")
    assert.same({ 2, 100 }, dims)
    assert.equal(1.5, data[199])
    assert.same({ "2.npy", "a.npy" }, require("tpl.core").sys.list(folder .. "/o/p"))
  end)

  it("tap: one line and one file for each value", function()
    local engine = helper.engine { tap = function(_, opts)
      assert.equal("blk.0.*", opts.at)
      return { {
        name = "blk.0.attn.core", dims = { "tok", "embd" }, rows = 1, cols = 2, placement = "[tok,embd@tp]", op = "attend",
        rank_shapes = { { 1, 1 }, { 1, 1 } }, data = { 1, 2 },
      } }
    end }
    local r = helper.run({ "tap", "m", "--in", rows('{"id":"a","ids":[1]}'), "--out", folder .. "/o", "--at", "blk.0.*" }, { engine = engine })
    assert.equal(0, r.code)
    assert.equal(folder .. "/o/a.blk.0.attn.core.npy", r.lines[1].file)
    local data, dims = require("tpl.npy").read(r.lines[1].file)
    assert.same({ 1, 2, 2 }, { dims[1], dims[2], data[1] })
  end)

  it("template: render snippets and report Python's exception class", function()
    local r = helper.run { "template", "--in", rows('{"id":"a","template":"{{ x }}","vars":{"x":1.0}}', '{"id":"b","template":"{{ 1/0 }}"}', '{"id":"c"}') }
    assert.same({ "1.0", "ZeroDivisionError", "bad_row" }, { r.lines[1].prompt, r.lines[2].error.code, r.lines[3].error.code })
    assert.same({ "id", "prompt" }, keys_of(r.lines[1]))
  end)

  it("tokenize and detokenize with a tokenizer file alone", function()
    local model = helper.model("llama-gqa-untied")
    if not model then return pending("no ../shared") end
    local r = helper.run { "tokenize", "--file", model .. "/tokenizer.json", "--in", rows('{"id":"a","text":"hello"}', '{"bytes_hex":"ff"}', '{"text":5}') }
    assert.equal(0, r.code)
    assert.is_true(#r.lines[1].ids > 0)
    assert.equal("bad_row", r.lines[3].error.code)
    local back = helper.run { "detokenize", "--file", model .. "/tokenizer.json", "--in", rows(json.encode { id = "a", ids = r.lines[1].ids }) }
    assert.same({ "id", "text", "chunks", "tail" }, keys_of(back.lines[1]))
    assert.equal("hello", back.lines[1].text)
  end)
end)
