-- SPDX-License-Identifier: Apache-2.0
-- Expected values: interface.md section 1 (order of search, cache folders).
local find = require("tpl.find")
local helper = require("cli.helper")

describe("tpl.find", function()
  local folder, env, real_env
  before_each(function()
    folder, env, real_env = helper.folder(), {}, find.env
    env.HOME = folder .. "/home"
    find.env = function(name) return env[name] end
  end)
  after_each(function()
    find.env = real_env
    helper.remove(folder)
  end)

  it("places the caches as documented", function()
    assert.equal(folder .. "/home/.cache/tpl", find.cache())
    assert.equal(folder .. "/home/.cache/huggingface/hub", find.hf_cache())
    env.XDG_CACHE_HOME = "/x"
    assert.equal("/x/huggingface/hub", find.hf_cache())
    env.HF_HOME = "/hf"
    assert.equal("/x/tpl", find.cache())
    assert.equal("/hf/hub", find.hf_cache())
    env.TPL_CACHE, env.HF_HUB_CACHE = "/c", "/hub"
    assert.equal("/c", find.cache())
    assert.equal("/hub", find.hf_cache())
  end)

  it("takes a path, relative to deploy.lua first", function()
    helper.write(folder .. "/d/m.gguf", "x")
    local m = assert(find.model("m.gguf", folder .. "/d"))
    assert.same({ folder .. "/d/m.gguf", "file", "path" }, { m.path, m.kind, m.from })
    assert.equal(folder .. "/d/m.gguf", assert(find.model(folder .. "/d/m.gguf", "/elsewhere")).path)
  end)

  it("takes org/name from the Hugging Face cache at the commit of main", function()
    local base = folder .. "/home/.cache/huggingface/hub/models--org--name"
    helper.write(base .. "/refs/main", "abc123\n")
    helper.write(base .. "/snapshots/abc123/config.json", "{}")
    local m = assert(find.model("org/name"))
    assert.same({ base .. "/snapshots/abc123", "dir", "hugging face cache" }, { m.path, m.kind, m.from })
  end)

  it("does not follow a ref out of the cache", function()
    local base = folder .. "/home/.cache/huggingface/hub/models--org--name"
    helper.write(base .. "/refs/main", "../../../../..")
    assert.is_nil((find.model("org/name")))
  end)

  it("takes a name from the model cache, file before folder", function()
    local cache = folder .. "/home/.cache/tpl/models/"
    helper.write(cache .. "tiny/config.json", "{}")
    assert.same({ cache .. "tiny", "dir" }, { find.model("tiny").path, find.model("tiny").kind })
    helper.write(cache .. "tiny.gguf", "x")
    local m = find.model("tiny")
    assert.same({ cache .. "tiny.gguf", "file", "model cache" }, { m.path, m.kind, m.from })
  end)

  it("does not mistake any folder for a model of that name", function()
    helper.write(folder .. "/d/tiny/notes.txt", "x")
    assert.is_nil((find.model("tiny", folder .. "/d")))
    helper.write(folder .. "/d/tiny/config.json", "{}")
    assert.equal(folder .. "/d/tiny", find.model("tiny", folder .. "/d").path)
  end)

  it("says where it looked, with exit 2 and the nearest cached name", function()
    helper.write(folder .. "/home/.cache/tpl/models/smollm2.gguf", "x")
    local m, e = find.model("smolm2")
    assert.is_nil(m)
    assert.equal(2, e.exit)
    assert.matches("models/smolm2.gguf", e.message, 1, true)
    assert.matches("did you mean 'smollm2'", e.hint)
  end)

  it("searches layouts beside deploy.lua, then TPL_PATH, then the built-in ones", function()
    local layouts = folder .. "/d/layouts/mine.lua"
    helper.write(folder .. "/p1/layouts/mine.lua", "")
    helper.write(folder .. "/p2/layouts/mine.lua", "")
    env.TPL_PATH = folder .. "/p1:" .. folder .. "/p2"
    assert.same({ folder .. "/p1/layouts/mine.lua", "TPL_PATH" }, { find.script("layouts", "mine", folder .. "/d").path, find.script("layouts", "mine", folder .. "/d").from })
    helper.write(layouts, "")
    local hit = find.script("layouts", "mine", folder .. "/d")
    assert.same({ layouts, "beside deploy.lua" }, { hit.path, hit.from })
  end)

  it("takes text with a slash or .lua as a path", function()
    helper.write(folder .. "/d/my/layout.lua", "")
    assert.equal(folder .. "/d/my/layout.lua", find.script("layouts", "my/layout.lua", folder .. "/d").path)
  end)

  it("refuses an unknown layout or policy with exit 3", function()
    for kind, code in pairs { layouts = "layout_error", policies = "policy_error", models = "model_error" } do
      local hit, e = find.script(kind, "nothing", folder)
      assert.is_nil(hit)
      assert.same({ 3, code }, { e.exit, e.code })
    end
  end)

  it("runs nothing that lies in the model's folder", function()
    helper.write(folder .. "/m/config.json", "{}")
    helper.write(folder .. "/m/layouts/evil.lua", "")
    assert.is_nil((find.script("layouts", "evil", folder .. "/m", { model_folder = folder .. "/m" })))
  end)
end)
