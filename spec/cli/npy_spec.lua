-- SPDX-License-Identifier: Apache-2.0
-- Expected values: numpy/lib/format.py (format 1.0); the bytes of np.save(np.array([[1, 2]], '<f4')) with NumPy 1.24, taken once by hand.
local ffi = require("ffi")
local helper = require("cli.helper")
local npy = require("tpl.npy")

describe("tpl.npy", function()
  it("writes the header that NumPy writes", function()
    local text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }"
    local expected = "\147NUMPY\1\0\118\0" .. text .. (" "):rep(117 - #text) .. "\n"
    assert.equal(128, #expected)
    assert.equal(expected, npy.header { 1, 2 })
    assert.equal(0, #npy.header { 123456, 49152 } % 64)
    assert.matches("'shape': %(3,%)", npy.header { 3 })
  end)

  it("writes lists, float arrays and double arrays, and reads them back", function()
    local folder = helper.folder()
    for _, data in ipairs { { 1.5, -2, 3, 4, 5, 6 }, ffi.new("float[6]", 1.5, -2, 3, 4, 5, 6), ffi.new("double[6]", 1.5, -2, 3, 4, 5, 6) } do
      assert(npy.write(folder .. "/x.npy", data, { 3, 2 }))
      local back, dims = npy.read(folder .. "/x.npy")
      assert.same({ 3, 2 }, dims)
      assert.same({ 1.5, -2, 6 }, { back[0], back[1], back[5] })
    end
    helper.remove(folder)
  end)

  it("gives nil and a message for what it cannot write or read", function()
    assert.is_nil((npy.write("/nonexistent/x.npy", { 1 }, { 1 })))
    local folder = helper.folder()
    helper.write(folder .. "/x.npy", "no")
    assert.is_nil((npy.read(folder .. "/x.npy")))
    helper.remove(folder)
  end)
end)
