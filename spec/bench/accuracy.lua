#!/usr/bin/env luajit
-- SPDX-License-Identifier: Apache-2.0
--- How near tpl stays to float32: mean KL divergence of the next-token distribution, and the stored greedy steps taken.
---
---     luajit spec/bench/accuracy.lua MODEL.gguf FIXTURE_FOLDER [key=value..]
---
--- FIXTURE_FOLDER is one that holds transformers' float32 answers, as ../shared/fixtures/models/llama-smollm2-135m-q4_1: per prompt
--- the ids and logits of the 32 likeliest tokens and the log-sum-exp of every row. KL (in nats) is taken from those 32 and one bucket
--- for the rest of the vocabulary, so it is a lower bound of the whole one; prefixes are the stored ones for both.
package.path = "./lua/?.lua;./lua/?/init.lua;" .. package.path
package.cpath = "./build/lib/?.so;" .. package.cpath
local ffi = require("ffi")
local json = require("tpl.json")

local function die(message)
  io.stderr:write("accuracy: ", tostring(message), "\n")
  os.exit(1)
end

local function read_all(path)
  local f, message = io.open(path, "rb")
  if not f then die(message) end
  local text = f:read("*a")
  f:close()
  return text
end

local model, folder = arg[1], arg[2]
if not folder then die("usage: luajit spec/bench/accuracy.lua MODEL.gguf FIXTURE_FOLDER [key=value..]") end

-- Prompt and the greedy ids but the last: row #ids - 1 + k predicts greedy[k].
local function forced(prompt)
  local ids = {}
  for _, id in ipairs(prompt.ids) do ids[#ids + 1] = id end
  for k = 1, #prompt.greedy - 1 do ids[#ids + 1] = prompt.greedy[k] end
  return ids
end

-- Sum over a row of logits: log sum exp.
local function logsumexp(row, n)
  local max, sum = -math.huge, 0
  for v = 0, n - 1 do max = math.max(max, row[v]) end
  for v = 0, n - 1 do sum = sum + math.exp(row[v] - max) end
  return max + math.log(sum)
end

-- KL(reference || tpl) of one row, of the reference's top tokens and the rest as one bucket.
local function kl_row(row, vocab, ids, logits, n_top, reference_lse)
  local lse, kl, p_top, q_top = logsumexp(row, vocab), 0, 0, 0
  for j = 0, n_top - 1 do
    local log_p, log_q = logits[j] - reference_lse, row[ids[j]] - lse
    kl = kl + math.exp(log_p) * (log_p - log_q)
    p_top, q_top = p_top + math.exp(log_p), q_top + math.exp(log_q)
  end
  if p_top < 1 and q_top < 1 then kl = kl + (1 - p_top) * math.log((1 - p_top) / (1 - q_top)) end
  return kl
end

local function measure(engine, prompt)
  local got, e = engine:logits(forced(prompt))
  if not got then die(e) end
  local text = {}
  for _, name in ipairs { "top_ids", "top_logits", "logsumexp" } do text[name] = read_all(folder .. "/" .. prompt[name]) end
  local ids, logits = ffi.cast("const int32_t *", text.top_ids), ffi.cast("const float *", text.top_logits)
  local lse = ffi.cast("const float *", text.logsumexp)
  local n_rows, n_top, kl, equal = prompt.top_shape[1], prompt.top_shape[2], 0, 0
  for i = 0, n_rows - 1 do
    kl = kl + kl_row(got.data + i * got.vocab, got.vocab, ids + i * n_top, logits + i * n_top, n_top, lse[i])
  end
  for k, id in ipairs(prompt.greedy) do
    if got.argmax[#prompt.ids - 1 + k] == id then equal = equal + 1 end
  end
  return kl, n_rows, equal
end

local expected = json.decode(read_all(folder .. "/expected.json"))
local plan, e = require("tpl.plan.make").make(model, { unpack(arg, 3) })
if not plan then die(e) end
local engine
engine, e = require("tpl.engine").open(plan, {})
if not engine then die(e) end
local kl, rows, equal, steps = 0, 0, 0, 0
for _, prompt in ipairs(expected.prompts) do
  local k, n, same = measure(engine, prompt)
  kl, rows, equal, steps = kl + k, rows + n, equal + same, steps + #prompt.greedy
end
engine:close()
print(("KL %.2g over %d rows, greedy %d of %d"):format(kl / rows, rows, equal, steps))
