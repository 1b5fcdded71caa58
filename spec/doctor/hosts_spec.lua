-- SPDX-License-Identifier: Apache-2.0
-- The failure table of issue 5 as recorded hosts (spec/doctor/hosts.lua): each names its cause. And the clean one.
local doctor = require("tpl.doctor")

local DIR = require("spec.doctor.hosts").dir()

local function found(name, models)
  local report = assert(doctor.examine { root = DIR .. name, models = models })
  local out = {}
  for _, c in ipairs(report.checks) do
    out[c.code] = c
    assert.is_falsy(c.broken, c.code .. ": " .. c.evidence)
  end
  return out, report
end

local function says(c, status, ...)
  assert.equal(status, c.status, c.code .. ": " .. c.evidence)
  for _, pattern in ipairs { ... } do assert.matches(pattern, c.evidence) end
end

describe("tpl doctor on recorded hosts", function()
  it("finds nothing on the clean one", function()
    local checks, report = found("clean")
    assert.equal(0, report.failed)
    for code, c in pairs(checks) do assert.is_true(c.status == "ok" or c.status == "skip", code .. ": " .. c.evidence) end
  end)

  it("heads: 64 heads over 3 GPUs", function()
    local c = found("heads-not-divisible", { { name = DIR .. "heads-not-divisible/model", words = {} } })
    says(c.tp_heads, "fail", "64 attention heads", "tp is 3 %(NUM_GPUS=3", "not divisible")
    assert.matches("tp of 1, 2, 4, 8", c.tp_heads.fix)
    assert.equal("ok", found("heads-not-divisible", { { name = DIR .. "heads-not-divisible/model", words = { { key = "tp",
      value = "2" } } } }).tp_heads.status)
  end)

  it("NCCL time-outs: /dev/shm, ACS, IOMMU", function()
    local c, report = found("nccl-timeout")
    says(c.dev_shm, "fail", "64 MiB")
    says(c.acs, "fail", "0000:19:00.0 ACSCtl SrcValid%+ ReqRedir%+")
    says(c.iommu, "fail", "DMA%-FQ")
    says(c.cap_sys_nice, "warn", "/.dockerenv")
    assert.equal(3, report.failed)
    assert.matches("%-%-shm%-size", c.dev_shm.fix)
    assert.matches("setpci %-s 0000:19:00.0 ECAP_ACS%+0x6.w=0000", c.acs.fix)
  end)

  it("one GPU idle: the variable that hides it, and the count", function()
    local c = found("one-gpu-idle")
    says(c.gpu_hidden, "warn", "CUDA_VISIBLE_DEVICES=", "1 of 4 GPUs idle: GPU 3 %(0000:9b:00.0%)")
    says(c.num_gpus, "warn", "NUM_GPUS=2", "1 stand idle")
  end)

  it("slow: peer access off in a file, pairs across sockets, cores of one socket, eight lanes", function()
    local c = found("slow-pcie-numa")
    says(c.nccl_p2p_level, "fail", "NCCL_P2P_LEVEL=LOC %(/etc/nccl.conf:2%)")
    says(c.numa_crossing, "warn", "4 pairs")
    says(c.cpuset_numa, "fail", "0%-15", "node 1")
    says(c.pcie_width, "warn", "GPU 3 .* x8 of x16")
    says(c.nccl_conf_file, "warn", "/etc/nccl.conf")
  end)

  it("another pair after a restart: pinned by index, in CUDA's order, across sockets", function()
    local c = found("other-pair-after-restart")
    says(c.uuid_pin, "warn", "CUDA_VISIBLE_DEVICES=1,2", "by index")
    assert.matches("CUDA_VISIBLE_DEVICES=GPU%-%x+%-.*,GPU%-%x+%-", c.uuid_pin.fix)
    says(c.cuda_device_order, "warn", "CUDA_DEVICE_ORDER is not set")
    says(c.numa_crossing, "warn", "GPU 1 %- GPU 2 SYS")
  end)
end)
