-- SPDX-License-Identifier: Apache-2.0
--- A config.json is data from somewhere: whatever stands in it, tpl.shape gives a shape of finite numbers or says what is wrong.
local configs = require("spec.support.configs")
local json = require("tpl.json")
local shape = require("tpl.shape")

local values = { -1, 0, 0.5, 3, 1e300, 0 / 0, 1 / 0, "x", "", true, false, {}, { 1, 2 }, { "x" }, { a = { b = 1 } }, json.null, "absent" }

-- Lists the tables of a configuration that hold members: itself and the objects inside.
local function objects(config, out)
  out[#out + 1] = config
  for _, v in pairs(config) do
    if type(v) == "table" and getmetatable(v) ~= getmetatable(json.array {}) then objects(v, out) end
  end
  return out
end

local function finite(x) return type(x) == "number" and x == x and x >= 0 and x < 1e30 end

local function complaint(config)
  local s, e = shape.of(config)
  if not s then
    if e.code ~= "format" and e.code ~= "unsupported" then return ("%s: %s"):format(e.code, e.traceback or tostring(e)) end
    return nil
  end
  for _, key in ipairs { "weight_bytes", "params", "active_params", "embed_bytes", "head_bytes" } do
    if not finite(s[key]) then return key .. " is " .. tostring(s[key]) end
  end
  for key, v in pairs(s.layers[1]) do
    if type(v) == "number" and not finite(v) then return "layer " .. key .. " is " .. tostring(v) end
  end
end

describe("tpl.shape of hostile configurations", function()
  for _, name in ipairs { "llama-3.1-8b", "llama-3.3-70b-fp8", "llama-3.3-70b-fp8-modelopt", "gpt-oss-20b", "gpt-oss-120b-awq", "mixtral-8x7b",
    "qwen1.5-moe-a2.7b", "qwen3-30b-a3b", "deepseek-v3", "deepseek-v2-lite" } do
    it("never fails otherwise than by an error of its own: " .. name, function()
      local config, tried = configs.config(name), 0
      config.num_hidden_layers = 5 -- both kinds of layer of each model
      for _, object in ipairs(objects(config, {})) do
        local keys = {}
        for key in pairs(object) do keys[#keys + 1] = key end
        for _, key in ipairs(keys) do
          local before = object[key]
          for _, value in ipairs(values) do
            object[key] = value ~= "absent" and value or nil
            tried = tried + 1
            local text = complaint(config)
            assert.is_nil(text, ("%s = %s: %s"):format(tostring(key), tostring(value), tostring(text)))
          end
          object[key] = before
        end
      end
      assert.is_true(tried > 200)
    end)
  end
end)
