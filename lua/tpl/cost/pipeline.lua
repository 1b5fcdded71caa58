-- SPDX-License-Identifier: Apache-2.0
--- Run the stages of a replica as a pipeline: what one piece of work takes in each, how many micro-batches are in flight,
--- what stands still, and what a served mix of prompts and answers comes to. Pure.
local cpu = require "tpl.cost.cpu"
local link = require "tpl.cost.link"
local step = require "tpl.cost.step"
local team = require "tpl.cost.team"

local M = {}

local max, min, ceil, floor = math.max, math.min, math.ceil, math.floor

local MOST_SEQS = 1024 -- sequences of a step when a replica is full
local PROMPTS = 4      -- that a full replica works on at a time: engines put 2048 tokens and more into a step
-- What uneven steps leave of a pipeline's rate when prompts and answers are mixed: SiPipe reports 23 % more use of the GPUs and 2.1
-- times the throughput over such a one (arXiv:2506.22033), which puts it between 0.8 and 0.5.
local PIPELINE_SHARE = 0.7

-- The slowest of the pairs that hand a stage's result on.
local function send_link(t, from, to)
  local worst, a, b
  for i = 1, max(#from.ranks, #to.ranks) do
    local x, y = from.ranks[min(i, #from.ranks)].uid, to.ranks[min(i, #to.ranks)].uid
    local l = link.of(t, x, y)
    if not worst or l.gb_s < worst.gb_s then worst, a, b = l, x, y end
  end
  return worst, a, b
end

local function send_us(stage, work, opts)
  if not stage.next_link then return 0 end
  local bytes = max(1, work.tokens) * stage.shape.hidden * opts.comm_element
  if stage.next_link.cpu then return cpu.send(stage.next_link, bytes) end
  return stage.next_link.us + stage.ranks[1].device.launch_us + bytes / (1000 * stage.next_link.gb_s)
end

--- Add up a field over the stages.
function M.sum(times, key)
  local n = 0
  for _, s in ipairs(times) do n = n + s[key] end
  return n
end

-- All stages on one piece of work: list of times, with sends under comm.
local function run(stages, work, in_flight, opts)
  local out, longest = {}, 0
  team.set(stages, in_flight, work, opts)
  for i, stage in ipairs(stages) do
    local s = step.time(stage, work, opts)
    local send = send_us(stage, work, opts)
    s.us, s.comm = s.us + send, s.comm + send
    out[i], longest = s, max(longest, s.us)
  end
  return out, longest
end

--- Give what the host does between two steps.
function M.step_us(stages)
  local d = stages[1].ranks[1].device
  return d.kind == "cpu" and cpu.step_us(#stages) or d.step_us
end

--- Price a token of n sequences: as many micro-batches are in flight as there are stages, or sequences.
---@return {times: tpl.cost.StepTime[], itl: number, bubble: number, in_flight: integer}
function M.decode(stages, n, depth, opts)
  local in_flight = min(#stages, n)
  local b = ceil(n / in_flight)
  local times, longest = run(stages, { tokens = b, seqs = b, pos = depth, kv_pos = depth, rows = b }, in_flight, opts)
  local pass = M.sum(times, "us")
  local cycle = max(pass, in_flight * longest)
  return { times = times, itl = cycle + M.step_us(stages), bubble = max(0, 1 - in_flight * pass / (#stages * cycle)),
    in_flight = in_flight }
end

--- Price a prompt in chunks of equal size through all stages; the last chunk makes a token.
---@param prompts? integer   that are worked on at a time, one for each part of the requests; 1
---@return {times: tpl.cost.StepTime[], us: number, longest: number, n: integer}
function M.prefill(stages, prompt, opts, prompts)
  prompts = prompts or 1
  local n = max(1, ceil(prompt / opts.chunk))
  local size, mean = prompt / n, prompt / 2
  local work = { tokens = size * prompts, seqs = prompts, pos = mean, kv_pos = max(mean, size), rows = prompts }
  local times, longest = run(stages, work, min(n, #stages), opts)
  return { times = times, us = M.sum(times, "us") + (n - 1) * longest, longest = longest, n = n }
end

--- List the steps until the last of n prompts that arrive at once has its first token, as core/serve/sched.c forms them: decodes first,
--- then prompts in order of arrival.
---@param prompt integer
---@param n integer
---@param chunk integer   tokens of a step
---@return tpl.cost.Work[]
function M.steps_of(prompt, n, chunk)
  local out, left, first = {}, {}, 1
  for i = 1, n do left[i] = prompt end
  while first <= n do
    local w = { tokens = 0, seqs = 0, pos = 0, kv_pos = 0, rows = first - 1 }
    local function take(tokens, pos, kv_pos)
      w.tokens, w.seqs, w.pos, w.kv_pos = w.tokens + tokens, w.seqs + 1, w.pos + tokens * pos, w.kv_pos + kv_pos
    end
    for _ = 1, min(first - 1, chunk - 1) do take(1, prompt, prompt) end
    local i = first
    while i <= n and w.tokens < chunk do
      local tokens = min(left[i], chunk - w.tokens)
      take(tokens, prompt - left[i] + tokens / 2, prompt - left[i] + tokens)
      left[i] = left[i] - tokens
      if left[i] == 0 then w.rows, first = w.rows + 1, i + 1 end
      i = i + 1
    end
    w.pos, w.kv_pos = w.pos / w.tokens, w.kv_pos / w.seqs
    out[#out + 1] = w
  end
  return out
end

--- Give the time until the last of n prompts that arrive together has its first token.
---@return number us
function M.arrival(stages, prompt, n, opts)
  local us, fill = 0, 0
  local list = M.steps_of(prompt, n, opts.chunk)
  for _, work in ipairs(list) do
    local times, longest = run(stages, work, min(#list, #stages), opts)
    fill = max(fill, M.sum(times, "us") - longest)
    us = us + longest + M.step_us(stages)
  end
  return us + fill
end

local function batch_parts(stages)
  local dp = 1
  for _, stage in ipairs(stages) do dp = max(dp, stage.degrees.dp) end
  return dp
end

--- Give the output tokens a second when the cache is full of requests of the mix.
---@return {tok_s: number, concurrency: integer}
function M.served(stages, kv_tokens, opts)
  local prompts = max(PROMPTS, batch_parts(stages))
  local n = min(MOST_SEQS, max(1, floor(kv_tokens / opts.depth)))
  local d, fill = M.decode(stages, n, opts.depth, opts), M.prefill(stages, opts.mix_prompt, opts, prompts)
  local per_request = opts.output * d.itl / n + fill.n * fill.longest / prompts
  local share = #stages > 1 and PIPELINE_SHARE or 1
  return { tok_s = kv_tokens > 0 and opts.output / per_request * 1e6 * share or 0, concurrency = n }
end

--- Find the link that each stage sends over.
function M.connect(t, stages)
  for i = 1, #stages - 1 do
    stages[i].next_link, stages[i].next_a, stages[i].next_b = send_link(t, stages[i], stages[i + 1])
  end
end

return M
