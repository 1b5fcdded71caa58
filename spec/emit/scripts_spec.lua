-- SPDX-License-Identifier: Apache-2.0
-- Start scripts are run, with stand-ins for nvidia-smi and the engines on PATH that write down how they were called.
local S = dofile("spec/emit/support.lua")
local emit = require("tpl.emit")
local files = dofile("spec/support/files.lua")
local tmpdir = dofile("spec/support/tmpdir.lua")

local U = S.uuid

local ENGINE = [[#!/bin/sh
call=$(printf '%s' "$(basename "$0")"; for a in "$@"; do printf ' [%s]' "$a"; done; echo; env | grep -E '^(CUDA_VISIBLE|CUDA_DEVICE|NCCL|VLLM|SGLANG|TLLM)_' | sort)
printf '%s\n' "$call" >> "$LOG" # in one write: replicas start at the same time
if [ -n "${SHOW:-}" ]; then for a in "$@"; do case $a in /*) cat "$a" >> "$LOG" ;; esac; done; fi
]]

-- `numactl` of the stand-ins allows binding unless told that set_mempolicy is refused.
local NUMACTL = [[#!/bin/sh
[ -z "$NO_MEMPOLICY" ] || exit 1
while [ "${1#--}" != "$1" ]; do bound="$bound $1"; shift; done
[ "$1" = true ] || echo "numactl$bound" >> "$LOG"
exec "$@"
]]

local TASKSET = [[#!/bin/sh
echo "taskset $2" >> "$LOG"
shift 2
exec "$@"
]]

describe("a start script", function()
  local dir

  before_each(function() dir = tmpdir.new() end)
  after_each(function() dir:close() end)

  -- `order`: GPU number by index, as nvidia-smi lists them now.
  local function programs(order)
    local rows, list = {}, {}
    for i, n in ipairs(order) do
      rows[i] = ("%d, %s"):format(i - 1, U(n))
      list[i] = ("GPU %d: NVIDIA H100 80GB HBM3 (UUID: %s)\n  MIG 3g.40gb     Device  0: (UUID: %s)"):format(i - 1, U(n), S.mig_uuid(n, 0))
    end
    dir:write("rows", table.concat(rows, "\n") .. "\n")
    dir:write("list", table.concat(list, "\n") .. "\n")
    dir:write("nvidia-smi", '#!/bin/sh\ncase $1 in\n  --query-gpu=index,uuid) [ "$2" = --format=csv,noheader ] && cat "$(dirname "$0")/rows" ;;\n'
      .. '  -L) cat "$(dirname "$0")/list" ;;\n  *) exit 9 ;;\nesac\n')
    for _, name in ipairs { "vllm", "python3", "trtllm-serve", "trtllm-llmapi-launch", "tpl" } do dir:write(name, ENGINE) end
    dir:write("numactl", NUMACTL)
    dir:write("taskset", TASKSET)
    assert(dir:sh("chmod +x nvidia-smi vllm python3 trtllm-serve trtllm-llmapi-launch tpl numactl taskset"))
  end

  local function run(text, environment, arguments)
    dir:write("start.sh", text)
    dir:write("log", "")
    local is_ok = dir:sh(("PATH=\"$PWD:$PATH\" LOG=\"$PWD/log\" %s sh start.sh %s >out 2>&1"):format(environment or "", arguments or ""))
    return is_ok, files.slurp(dir.path .. "/log"), files.slurp(dir.path .. "/out")
  end

  local function has(text, part) assert.truthy(text:find(part, 1, true), ("no '%s' in:\n%s"):format(part, text)) end

  local function lint(text)
    if os.execute("command -v shellcheck >/dev/null") ~= 0 then
      pending("shellcheck is not installed")
      return
    end
    dir:write("lint.sh", text)
    assert(dir:sh("shellcheck -s sh lint.sh > lint.txt 2>&1"), files.read(dir.path .. "/lint.txt"))
  end

  local function pair() return S.report({ { { U(0), U(1) } } }, { n_head = 64, n_kv = 8 }) end

  it("turns UUIDs into the indices of the moment, in the order of ranks", function()
    local e = assert(emit.make("vllm", pair(), S.machine(4)))
    programs { 3, 1, 2, 0 }
    local is_ok, log, out = run(e.text)
    assert.is_true(is_ok, out)
    has(log, "CUDA_VISIBLE_DEVICES=3,1\n")
    has(log, "CUDA_DEVICE_ORDER=PCI_BUS_ID\n")
    programs { 0, 1, 2, 3 }
    is_ok, log = run(e.text)
    assert.is_true(is_ok)
    has(log, "CUDA_VISIBLE_DEVICES=0,1\n")
  end)

  it("ends before the engine starts when a GPU is missing, and names it", function()
    local e = assert(emit.make("vllm", pair(), S.machine(4)))
    programs { 0, 2, 3 }
    local is_ok, log, out = run(e.text)
    assert.is_false(is_ok)
    assert.equal("", log)
    has(out, U(1))
  end)

  it("ends when nvidia-smi fails", function()
    local e = assert(emit.make("vllm", pair(), S.machine(4)))
    programs { 0, 1 }
    dir:write("nvidia-smi", "#!/bin/sh\nexit 9\n")
    local is_ok, log = run(e.text)
    assert.is_false(is_ok)
    assert.equal("", log)
  end)

  it("overrides a CUDA_VISIBLE_DEVICES that was left in the environment", function()
    local e = assert(emit.make("vllm", pair(), S.machine(4)))
    programs { 0, 1, 2, 3 }
    local _, log = run(e.text, "CUDA_VISIBLE_DEVICES=2,3")
    has(log, "CUDA_VISIBLE_DEVICES=0,1\n")
  end)

  it("calls vLLM with the plan's sizes and passes further arguments on", function()
    local e = assert(emit.make("vllm", S.report({ { { U(0), U(1) }, { U(2), U(3) } } }, { layers = { { 0, 42 }, { 43, 79 } }, n_head = 64,
      n_kv = 8 }),
      S.machine(4), { want = { concurrency = 20 } }))
    assert.equal("0.33.0", e.version)
    has(e.text, "vLLM 0.33.0")
    programs { 0, 1, 2, 3 }
    local _, log = run(e.text, "", "--dtype 'b f'")
    has(log, "vllm [serve] [meta-llama/Llama-3.3-70B-Instruct] [--host] [127.0.0.1] [--port] [8000] [--tensor-parallel-size] [2] "
      .. "[--pipeline-parallel-size] [2] "
      .. "[--max-model-len] [8192] [--max-num-seqs] [20] [--gpu-memory-utilization] [0.90]")
    has(log, "[--numa-bind-nodes] [0] [0] [1] [1] [--dtype] [b f]\n")
    has(log, "VLLM_PP_LAYER_PARTITION=43,37\n") -- layers 0..42 are 43, 43..79 are 37
    assert.is_nil(log:find("--data-parallel-size", 1, true))
    assert.is_nil(log:find("--enable-expert-parallel", 1, true))
  end)

  it("leaves an equal cut to the engine", function()
    local e = assert(emit.make("vllm", S.report({ { { U(0) }, { U(1) } } }, { layers = { { 0, 39 }, { 40, 79 } } }), S.machine(2)))
    assert.is_nil(e.text:find("VLLM_PP_LAYER_PARTITION", 1, true))
  end)

  it("takes the share of memory from the fullest card: 60 of 80 GiB are 0.75", function()
    local report = pair()
    report.ranks[2].bytes.capacity = 60 * 2 ^ 30
    has(assert(emit.make("vllm", report, S.machine(2))).text, "--gpu-memory-utilization 0.75")
  end)

  it("says experts and attention groups in each engine's words", function()
    local report = S.report({ { { U(0), U(1), U(2), U(3) } } }, { tp = 2, ep = 4, dp = 2, n_head = 64, n_kv = 8 })
    report.stages[1].axes = { { name = "dp", size = 2 }, { name = "tp", size = 2 } }
    local vllm = assert(emit.make("vllm", report, S.machine(4))).text
    has(vllm, "--tensor-parallel-size 2")
    has(vllm, "--data-parallel-size 2")
    has(vllm, "--enable-expert-parallel")
    local sglang = assert(emit.make("sglang", report, S.machine(4))).text
    has(sglang, "--tp-size 4") -- SGLang counts attention groups into tp-size
    has(sglang, "--attn-dp-size 2")
    has(sglang, "--ep-size 4")
    local trtllm = assert(emit.make("trtllm", report, S.machine(4))).text
    has(trtllm, "--ep_size 4")
    has(trtllm, "enable_attention_dp: true")
  end)

  it("numbers vLLM's devices data-parallel group by group", function()
    -- two stages of dp=2 x tp=1: vLLM's rank order is dp, then pp, then tp (config/parallel.py), so stage 0 and 1 of group 0 come first
    local report = S.report({ { { U(0), U(1) }, { U(2), U(3) } } }, { tp = 1, dp = 2 })
    for _, s in ipairs(report.stages) do s.axes = { { name = "dp", size = 2 }, { name = "tp", size = 1 } } end
    programs { 0, 1, 2, 3 }
    local _, log = run(assert(emit.make("vllm", report, S.machine(4))).text)
    has(log, "CUDA_VISIBLE_DEVICES=0,2,1,3\n")
  end)

  it("calls SGLang and TensorRT-LLM with their flags", function()
    local report = S.report({ { { U(0), U(1) }, { U(2), U(3) } } }, { layers = { { 0, 42 }, { 43, 79 } }, n_head = 64, n_kv = 8 })
    programs { 3, 2, 1, 0 }
    local is_ok, log, out = run(assert(emit.make("sglang", report, S.machine(4))).text)
    assert.is_true(is_ok, out)
    has(log, "python3 [-m] [sglang.launch_server] [--model-path] [meta-llama/Llama-3.3-70B-Instruct] [--host] [127.0.0.1] [--port] [8000] "
      .. "[--tp-size] [2] [--pp-size] [2]")
    has(log, "[--context-length] [8192] [--max-running-requests] [16]")
    has(log, "[--numa-node] [0] [0] [1] [1]")
    has(log, "SGLANG_PP_LAYER_PARTITION=43,37\n")
    has(log, "CUDA_VISIBLE_DEVICES=3,2,1,0\n")
    is_ok, log = run(assert(emit.make("trtllm", report, S.machine(4))).text, "SHOW=1")
    has(log, "trtllm-serve [meta-llama/Llama-3.3-70B-Instruct] [--host] [127.0.0.1] [--port] [8000] [--tp_size] [2] [--pp_size] [2] [--max_seq_len] "
      .. "[8192]")
    assert.is_true(is_ok)
    has(log, "pp_partition: [43, 37]")
  end)

  it("binds a replica of one NUMA node with numactl, and with taskset where memory may not be bound", function()
    local e = assert(emit.make("vllm", pair(), S.machine(4)))
    programs { 0, 1, 2, 3 }
    local _, log = run(e.text)
    has(log, "numactl --cpunodebind=0 --membind=0\nvllm [serve]")
    local is_ok, out
    is_ok, log, out = run(e.text, "NO_MEMPOLICY=1")
    assert.is_true(is_ok, out)
    has(log, "taskset 0-23\nvllm [serve]")
    has(out, "SYS_NICE")
  end)

  it("does not bind where a NUMA node is not known", function()
    local t = S.machine(2)
    t.devices[2].numa = nil
    local e = assert(emit.make("vllm", pair(), t))
    assert.is_nil(e.text:find("numactl", 1, true))
    assert.is_nil(e.text:find("--numa-bind", 1, true))
  end)

  it("starts one process per replica, each on its own port and devices", function()
    local e = assert(emit.make("vllm", S.report({ { { U(0), U(1) } }, { { U(2), U(3) } } }, { n_head = 64, n_kv = 8 }), S.machine(4),
      { serve = { port = 9000 } }))
    programs { 1, 0, 3, 2 }
    local is_ok, log, out = run(e.text)
    assert.is_true(is_ok, out)
    local by_port = {}
    for port, devices in log:gmatch("%[%-%-port%] %[(%d+)%][^\n]*\nCUDA_DEVICE_ORDER=[^\n]*\nCUDA_VISIBLE_DEVICES=([^\n]*)") do
      by_port[port] = devices
    end
    assert.same({ ["9000"] = "1,0", ["9001"] = "3,2" }, by_port)
  end)

  it("fails with the status of a replica that failed", function()
    local e = assert(emit.make("vllm", S.report({ { { U(0) } }, { { U(1) } } }), S.machine(2)))
    programs { 0, 1 }
    dir:write("vllm", '#!/bin/sh\ncase "$*" in *8001*) exit 7 ;; esac\n')
    dir:write("start.sh", e.text)
    assert(dir:sh('PATH="$PWD:$PATH" LOG=/dev/null sh start.sh; [ $? -eq 7 ]'))
  end)

  it("gives a MIG slice by its UUID and ends when the slice is gone", function()
    local e = assert(emit.make("vllm", S.report({ { { S.mig_uuid(2, 0) } } }), S.reference_host()))
    programs { 0, 1, 2 }
    local is_ok, log, out = run(e.text)
    assert.is_true(is_ok, out)
    has(log, "CUDA_VISIBLE_DEVICES=" .. S.mig_uuid(2, 0))
    programs { 0, 1 }
    is_ok, log = run(e.text)
    assert.is_false(is_ok)
    assert.equal("", log)
  end)

  it("keeps quotes, spaces and line ends of names out of the shell", function()
    local report = pair()
    report.model.path = "/models/it's $(touch owned) `x`"
    local t = S.machine(2)
    t.devices[1].pci = nil
    report.ranks[1].uid = U(0)
    report.plan_hash = "a\nb; touch owned"
    programs { 0, 1 }
    local is_ok, log, out = run(assert(emit.make("vllm", report, t)).text)
    assert.is_true(is_ok, out)
    has(log, "[/models/it's $(touch owned) `x`]")
    assert.is_nil(files.read(dir.path .. "/owned"))
  end)

  it("finds devices by PCI address where there are no UUIDs, and says that this is less", function()
    local t = S.machine(2)
    for i, d in ipairs(t.devices) do d.uuid, d.uid = nil, "GPU" .. i - 1 end
    local e = assert(emit.make("vllm", S.report({ { { "GPU0", "GPU1" } } }), t))
    assert.equal("not_pinned", e.warnings[1].code)
    has(e.text, "--query-gpu=index,pci.bus_id")
    has(e.text, "indices 00000000:18:00.0 00000000:19:00.0") -- NVML writes eight digits of domain, upper case
    t.devices[1].pci, t.devices[2].pci = nil, nil
    e = assert(emit.make("vllm", S.report({ { { "GPU0", "GPU1" } } }), t))
    has(e.text, "devices_0=0,1")
    has(e.text, "# Warning: ")
  end)

  describe("for two hosts", function()
    local function two_hosts()
      local devices = {}
      for n = 0, 3 do devices[n + 1] = S.gpu(n, { host = n < 2 and "node-a" or "node-b", numa = n % 2 }) end
      return S.topo { hosts = { { id = "node-a" }, { id = "node-b" } }, devices = devices, links = S.mesh(devices) }
    end

    it("finds out by UUID which host it is", function()
      local e = assert(emit.make("vllm", S.report({ { { U(0), U(1) }, { U(2), U(3) } } }, { n_head = 64, n_kv = 8 }), two_hosts()))
      programs { 3, 2 }
      local is_ok, log, out = run(e.text, "MASTER_ADDR=10.0.0.1")
      assert.is_true(is_ok, out)
      has(log, "[--nnodes] [2] [--node-rank] [1] [--master-addr] [10.0.0.1] [--master-port] [29501] [--headless]\n")
      has(log, "CUDA_VISIBLE_DEVICES=1,0\n")
      programs { 0, 1 }
      is_ok, log = run(e.text, "MASTER_ADDR=10.0.0.1")
      assert.is_true(is_ok)
      has(log, "[--node-rank] [0] [--master-addr] [10.0.0.1] [--master-port] [29501]\n")
      programs { 7, 8 }
      is_ok, log, out = run(e.text, "MASTER_ADDR=10.0.0.1")
      assert.is_false(is_ok)
      assert.equal("", log)
      has(out, "none of the plan's GPUs")
      is_ok = run(e.text) -- without the address of the first host
      assert.is_false(is_ok)
    end)

    it("starts the replicas of its own host only, and fails when one of their GPUs is gone", function()
      local e = assert(emit.make("sglang", S.report({ { { U(0), U(1) } }, { { U(2), U(3) } } }, { n_head = 64, n_kv = 8 }), two_hosts()))
      programs { 2, 3 }
      local is_ok, log, out = run(e.text)
      assert.is_true(is_ok, out)
      has(log, "[--port] [8001]")
      assert.is_nil(log:find("8000", 1, true))
      programs { 2 }
      is_ok = run(e.text)
      assert.is_false(is_ok)
    end)

    it("asks which host it is where copies of a host cannot be told apart", function()
      local t = two_hosts()
      for i, d in ipairs(t.devices) do
        local n = (i - 1) % 2
        d.uuid, d.index, d.pci, d.uid = nil, n, ("0000:%02x:00.0"):format(n), d.host .. "/GPU" .. n
      end
      local e = assert(emit.make("sglang", S.report({ { { "node-a/GPU1", "node-a/GPU0" } }, { { "node-b/GPU0", "node-b/GPU1" } } }), t))
      assert.equal("not_pinned", e.warnings[1].code)
      programs { 0, 1 }
      local is_ok, log, out = run(e.text, "NODE_RANK=0")
      assert.is_true(is_ok, out)
      has(log, "[--port] [8000]")
      has(log, "CUDA_VISIBLE_DEVICES=1,0\n")
      assert.is_nil(log:find("8001", 1, true))
      is_ok = run(e.text)
      assert.is_false(is_ok)
      lint(e.text)
    end)

    it("passes shellcheck for every engine", function()
      for _, target in ipairs { "vllm", "sglang", "trtllm", "slurm", "env" } do
        lint(assert(emit.make(target, S.report({ { { U(0), U(1) }, { U(2), U(3) } } }, { n_head = 64, n_kv = 8 }), two_hosts())).text)
      end
    end)
  end)

  it("passes shellcheck for every engine and shape", function()
    local shapes = {
      S.report({ { { U(0), U(1) } } }, { n_head = 64, n_kv = 8 }),
      S.report({ { { U(0), U(1) } }, { { U(2), U(3) } } }, { n_head = 64, n_kv = 8 }),
      S.report({ { { U(0) }, { U(2) } } }, { layers = { { 0, 42 }, { 43, 79 } } }),
      S.report({ { { S.mig_uuid(2, 0) } } }),
    }
    for _, report in ipairs(shapes) do
      for _, target in ipairs { "vllm", "sglang", "trtllm", "slurm", "env" } do lint(assert(emit.make(target, report, S.reference_host())).text) end
    end
  end)

  describe("of Slurm", function()
    it("asks for all whole GPUs of the host and chooses inside the step by UUID", function()
      local e = assert(emit.make("slurm", pair(), S.machine(4)))
      has(e.text, "#SBATCH --gpus-per-node=4\n")
      assert.is_nil(e.text:find("#SBATCH --gpus-per-task", 1, true))
      programs { 3, 1, 2, 0 }
      dir:write("srun", '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n')
      dir:sh("chmod +x srun")
      local is_ok, log, out = run(e.text, "", "-- hello")
      assert.is_true(is_ok, out)
      has(log, "tpl [run] [meta-llama/Llama-3.3-70B-Instruct] [tp=2] [pp=1] [want.context=8192] [want.concurrency=16] [--] [hello]\n")
      has(log, "CUDA_VISIBLE_DEVICES=" .. U(0) .. "," .. U(1) .. "\n")
    end)

    it("chooses by topology where the planned GPUs are not in the job", function()
      programs { 2, 3 }
      dir:write("srun", '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n')
      dir:sh("chmod +x srun")
      local _, log, out = run(assert(emit.make("slurm", pair(), S.machine(4))).text)
      has(log, "tpl [plan] [meta-llama/Llama-3.3-70B-Instruct] [tp=2] ")
      assert.is_nil(log:find("CUDA_VISIBLE_DEVICES", 1, true))
      has(out, "not the GPUs of the plan")
    end)

    it("passes on the words that a deploy.lua was given", function()
      local deploy = { origin = { file = "/srv/my deploy.lua", args = { tp = 2, model = "a b" } } }
      local e = assert(emit.make("slurm", pair(), S.machine(4), deploy))
      has(e.text, "export TPL_MODEL='/srv/my deploy.lua'\nexport TPL_WORDS=tp=2\n")
      assert.equal("word_left_out", e.warnings[1].code)
    end)

    it("counts MIG parents not as whole GPUs, and hosts as nodes", function()
      has(assert(emit.make("slurm", pair(), S.reference_host())).text, "#SBATCH --gpus-per-node=2\n")
      local t = S.topo { hosts = { { id = "a" }, { id = "b" } }, devices = { S.gpu(0, { host = "a" }), S.gpu(1, { host = "b" }) } }
      has(assert(emit.make("slurm", S.report({ { { U(0) }, { U(1) } } }), t)).text, "#SBATCH --nodes=2\n")
    end)
  end)

  it("as plain variables names devices by UUID with the reason above each line", function()
    local text = assert(emit.make("env", pair(), S.machine(4))).text
    programs { 0, 1 }
    dir:write("env.sh", text)
    assert(dir:sh('. ./env.sh && [ "$CUDA_VISIBLE_DEVICES" = "' .. U(0) .. "," .. U(1) .. '" ] && [ "$CUDA_DEVICE_ORDER" = PCI_BUS_ID ]'))
    local last
    for line in text:gmatch("[^\n]+") do
      if line:find("^export ") then assert.truthy(last:find("^# "), line) end
      last = line
    end
  end)
end)
