-- SPDX-License-Identifier: Apache-2.0
--- The cases of spec/bench/predict.lua: which cuts, batches and prompts of which model are measured. `fit` cases calibrate the CPU part of
--- lua/tpl/cost and are never judged; `test` cases are judged and never fitted. The two lists share no (batch, prompt).
local M = {}

local cuts = {
  { name = "tp=1 threads=1", words = { "tp=1", "threads=1" }, cores = 1 },
  { name = "tp=1 threads=2", words = { "tp=1", "threads=2" }, cores = 2 },
  { name = "tp=2 threads=1", words = { "tp=2", "threads=1" }, cores = 2 },
  { name = "pp=2 threads=1", words = { "pp=2", "threads=1" }, cores = 2 },
}

local loads = {
  test = { { 1, 128 }, { 1, 1024 }, { 8, 128 }, { 8, 1024 } },
  fit = { { 1, 512 }, { 4, 256 }, { 12, 64 } },
}

local NEW = 24 -- tokens that each request generates

--- List the cases of a round: for each model and cut its calibration, then what is judged.
---@param models {name: string, path: string}[]
---@param cores integer   cuts that need more are left out
function M.list(models, cores)
  local out = {}
  for _, m in ipairs(models) do
    for _, cut in ipairs(cuts) do
      for i = 1, cut.cores <= cores and #loads.fit + #loads.test or 0 do
        local kind = i <= #loads.fit and "fit" or "test"
        local load = loads.fit[i] or loads.test[i - #loads.fit]
        out[#out + 1] = { kind = kind, model = m.name, path = m.path, cut = cut.name, words = cut.words, batch = load[1], prompt = load[2], new = NEW,
          name = ("%s %s batch=%d prompt=%d"):format(m.name, cut.name, load[1], load[2]) }
      end
    end
  end
  return out
end

return M
