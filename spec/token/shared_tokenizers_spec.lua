-- SPDX-License-Identifier: Apache-2.0
--- tpl.tokenizer on the vocabularies of real models: every row of the shared fixtures. Expected values: Hugging Face tokenizers 0.23.3
--- and llama.cpp, as ../shared/fixtures/text/README.md says.
local json = require("tpl.json")
local tokenizer = require("tpl.tokenizer")
local tmpdir = require("spec.support.tmpdir")

local root = (os.getenv("TPL_SHARED") or "../shared") .. "/fixtures/text/tokenizers/"

-- `gguf`: also from vocab.gguf. `follow`: rows where llama.cpp differs must give `ids` all the same (llama.cpp's own limits: no NFC,
-- bytes that are not UTF-8); where it is false (Gemma) those rows are either answer.
local kinds = {
  { name = "gpt2", gguf = true, follow = true }, { name = "smollm2", gguf = true, follow = true },
  { name = "llama3", gguf = true, follow = true }, { name = "qwen2", gguf = true, follow = true },
  { name = "tekken", gguf = true, follow = true }, { name = "deepseek-v4" }, { name = "llama2", gguf = true, follow = true },
  { name = "mistral-v1", gguf = true, follow = true }, { name = "gemma3-small", gguf = true }, { name = "bpe-hf" }, { name = "bpe-hf-unk" },
  { name = "bpe-sp" }, { name = "unigram-hf" }, { name = "unigram-sp" },
}

local function exists(path)
  local f = io.open(path, "rb")
  if f then f:close() end
  return f ~= nil
end

local slurp = require("spec.support.files").slurp

local function rows(path)
  local list, pipe = {}, assert(io.popen("gzip -dc '" .. path .. "'"))
  for line in pipe:lines() do list[#list + 1] = json.decode(line) end
  pipe:close()
  return list
end

local function same(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if a[i] ~= b[i] then return false end
  end
  return true
end

local function text_of(row)
  return row.text or (row.bytes_hex:gsub("..", function(x) return string.char(tonumber(x, 16)) end))
end

--- The ids that a row asks of a file ("tokenizer.json", "vocab.gguf", "nonlegacy"); a second answer that counts as well.
local function wanted(row, kind, file)
  if file == "nonlegacy" then return row.nonlegacy or row.ids end
  if file == "vocab.gguf" and row.gguf ~= nil and not kind.follow and type(row.gguf) == "table" then return row.ids, row.gguf end
  return row.ids
end

local function check_encoding(t, kind, file)
  local n, first = 0, nil
  local list = rows(root .. kind.name .. "/cases.jsonl.gz")
  for i, row in ipairs(list) do
    local got = assert(t:encode(text_of(row), { special = row.special, bos = row.bos }))
    local want, other = wanted(row, kind, file)
    if not same(got, want) and not (other and same(got, other)) then
      n, first = n + 1, first or string.format("row %d: %s", i, table.concat(got, ",", 1, math.min(#got, 40)))
    end
  end
  assert.is_true(#list > 2000)
  assert.equal(0, n, first)
end

local function check_decoding(t, kind)
  local n, first = 0, nil
  local list = rows(root .. kind.name .. "/decode.jsonl.gz")
  for i, row in ipairs(list) do
    local prompt = row.prompt or 0
    local s, chunks = t:stream { skip_special = row.skip_special, prompt = prompt }, {}
    for k, id in ipairs(row.ids) do
      local chunk = s:push(id)
      if k > prompt then chunks[#chunks + 1] = chunk end
    end
    local ok = same(chunks, row.chunks) and s:flush() == row.tail
    if ok and prompt == 0 then ok = t:decode(row.ids, { skip_special = row.skip_special }) == row.text end
    if not ok then n, first = n + 1, first or string.format("row %d: %s", i, json.encode(chunks)) end
  end
  assert.is_true(#list > 400)
  assert.equal(0, n, first)
end

describe("tpl.tokenizer on the shared fixtures", function()
  local dir
  setup(function() dir = tmpdir.new() end)
  teardown(function() dir:close() end)

  --- Unpack a file of a kind and give its path; nil, and the test is pending, where there are no shared fixtures.
  local function unpack_file(name, file)
    local packed, path = root .. name .. "/" .. file .. ".xz", dir.path .. "/" .. file
    if not exists(packed) then
      pending("no shared fixtures at " .. root)
      return nil
    end
    assert(os.execute("xz -dc '" .. packed .. "' > '" .. path .. "'") == 0)
    return path
  end

  for _, kind in ipairs(kinds) do
    for _, file in ipairs { "tokenizer.json", "vocab.gguf" } do
      local is_gguf = file == "vocab.gguf"
      if not is_gguf or kind.gguf then
        it("reads every row of " .. kind.name .. " from " .. file, function()
          local path = unpack_file(kind.name, file)
          if not path then return end
          local t = assert(tokenizer.open(path))
          check_encoding(t, kind, file)
          check_decoding(t, kind)
        end)
      end
    end
  end

  for _, name in ipairs { "llama2", "mistral-v1" } do
    it("reads every row of " .. name .. " as its nonlegacy form", function()
      local path = unpack_file(name, "tokenizer.json")
      if not path then return end
      local d, patch = json.decode(slurp(path), { typed = true }), json.decode(slurp(root .. name .. "/nonlegacy.patch.json"))
      for key, value in pairs(patch) do d[key] = value end
      local t = assert(tokenizer.open(dir:write("tokenizer.json", json.encode(d))))
      check_encoding(t, { name = name }, "nonlegacy")
    end)
  end
end)
