-- SPDX-License-Identifier: Apache-2.0
--- Compute the frequencies of rotary position embeddings, in double precision, once per model.
-- Formulas: RoFormer (Su et al. 2021, arXiv:2104.09864) for the plain ones; Llama 3.1's published scaling for "llama3". Check values:
-- spec/config/rope_spec.lua.
local M = {}

--- Give theta^(-2i/dim) for i = 0 .. dim/2 - 1, as a 1-based list.
---@param theta number
---@param dim integer
---@return number[]
function M.plain(theta, dim)
  local freqs = {}
  for i = 0, dim / 2 - 1 do
    freqs[i + 1] = theta ^ (-2 * i / dim)
  end
  return freqs
end

--- Divide every frequency by a factor: position interpolation.
function M.linear(freqs, factor)
  local out = {}
  for i, f in ipairs(freqs) do out[i] = f / factor end
  return out
end

--- Divide frequency by frequency: the rope_freqs.weight tensor of GGUF files.
function M.divided(freqs, divisors)
  local out = {}
  for i, f in ipairs(freqs) do out[i] = f / divisors[i] end
  return out
end

--- Keep short wavelengths, divide long ones by the factor, blend between.
---@param freqs number[]
---@param s {factor: number, low: number, high: number, original: number}
function M.llama3(freqs, s)
  local out = {}
  for i, f in ipairs(freqs) do
    local wavelength = 2 * math.pi / f
    if wavelength < s.original / s.high then
      out[i] = f
    elseif wavelength > s.original / s.low then
      out[i] = f / s.factor
    else
      local keep = (s.original / wavelength - s.low) / (s.high - s.low)
      out[i] = (1 - keep) * f / s.factor + keep * f
    end
  end
  return out
end

return M
