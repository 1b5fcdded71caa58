-- SPDX-License-Identifier: Apache-2.0
--- List the commands: what they take, what help says about them, and which file runs them.
-- Data only, so that help, the parser and specs read the same list.
local M = {}

local JSON = { name = "--json", help = "print one JSON object on stdout; progress and logs go to stderr" }
local IN = { name = "--in", value = "FILE.jsonl", needed = true, help = "rows to read, one JSON object a line; - is stdin" }
local OUT = { name = "--out", value = "DIR", needed = true, help = "folder for the .npy files; made if it is missing" }

local engine_options = {
  { name = "--no-fuse", value = "PASS", optional = true, help = "run without fusion passes, or without the one named" },
  { name = "--no-graph", help = "run op by op, without captured graphs" },
  { name = "--deterministic", help = "same bits whatever shares the step (also TPL_DETERMINISTIC=1)" },
  { name = "--tune", value = "static", oneof = { "static" }, help = "choose kernels without stored timings" },
}

local function with_engine(...)
  local list = { ... }
  for _, option in ipairs(engine_options) do list[#list + 1] = option end
  return list
end

local WORDS = [[
FILE ends in .lua, anything else is a MODEL: a path, file.gguf, folder, org/name in the Hugging Face cache, or a name in the model
cache. key=value sets a key of tpl.args in a FILE. On a MODEL the keys are act, mesh, tp, pp, layout, shares, threads, kv.tokens,
kv.page, kv.dtype, step.tokens, step.chunk, want.context, want.concurrency, want.goal, place, replicas; on a FILE the same with the
prefix `deploy.`.
]]

M.list = {
  {
    name = "run", module = "tpl.cli.run", target = true, prompt = true, events = true, group = "Answer",
    summary = "load a model and answer a prompt, or chat on a terminal",
    usage = 'tpl run FILE|MODEL [key=value ...] [options] [-- "prompt"]',
    about = [[
Plans, loads and answers; the last line says what limited the speed. Without a prompt it chats on a terminal. The prompt goes
through the model's chat template.
]] .. WORDS,
    examples = {
      'tpl run examples/hello.lua -- "Why is the sky blue?"',
      'tpl run examples/hello.lua tp=2 -- "Why is the sky blue?"',
      'tpl run smollm2 act=f32 --max-tokens 32 -- "Name three colours."',
      "tpl run model.gguf",
    },
    options = with_engine(
      { name = "--json", help = "print events, one JSON object a line: plan, load, token, done" },
      { name = "--max-tokens", value = "N", number = { 1, 2 ^ 30 }, help = "stop after N tokens (default: what fits want.context)" },
      { name = "--temperature", value = "X", real = { 0, 100 }, help = "0 always takes the likeliest token (default)" },
      { name = "--top-p", value = "X", real = { 0, 1 }, help = "sample from the likeliest tokens that together have this probability" },
      { name = "--top-k", value = "N", number = { 0, 2 ^ 30 }, help = "sample from the N likeliest tokens" },
      { name = "--seed", value = "N", number = { 0, 2 ^ 53 }, help = "seed of the random numbers (also TPL_SEED)" },
      { name = "--manifest", value = "FILE", help = "run on the devices of this manifest and refuse drift (exit 4); written when it is not there" },
      { name = "--accept-drift", help = "take what has changed, and write the manifest anew" },
      { name = "--system", value = "TEXT", help = "a system message before the prompt" }),
  },
  {
    name = "plan", module = "tpl.cli.plan", target = true, target_many = true, group = "Look before you load",
    summary = "say what would run where, and what it needs, without loading weights",
    usage = [==[
tpl plan FILE|MODEL [key=value ...] [--topo FILE]... [--assume gpu=NAME] [--manifest FILE [--accept-drift]] [--explain] [--text]
         [--svg FILE] [--diff FILE] [--emit vllm|sglang|trtllm|k8s|slurm|env] [--why-not "tp=4"] [--json]]==],
    about = [[
Prints which devices were chosen and why, the best alternatives and what was left out; for each rank and stage the bytes of weights,
arena, communication and KV cache, how many tokens fit, every collective, and the predicted times. Nothing is loaded. A folder with
config.json alone is enough, and so is --topo: an `nvidia-smi topo -m` paste, an NCCL or lstopo XML, a record of `tpl topo --record`
(several are merged). Exit 4 when it does not fit or `require` is unmet.
A placement policy (`place` of deploy.lua) is a Lua function(topo, model, want) -> { replicas = {{ stages = {{ devices = {uid, ..},
layers = {first, last}, mesh =, layout =, shares = }} }}, reasons = {..}, excluded = {{uid =, why =}} }; built in are auto, exclude,
latency_first, numa_bind, nvlink_pairs, pipeline_balanced, replicas, spare_pairs, throughput_first, uneven_by_memory.
]] .. WORDS,
    examples = {
      "tpl plan examples/hello.lua tp=3 --explain", "tpl plan smollm2 tp=2 --text", "tpl plan org/name mesh=tp=4 pp=2 --json",
      "tpl plan deploy.lua --topo box.yaml --emit vllm > start.sh", 'tpl plan org/name --topo paste.txt --assume gpu=l40s --why-not "tp=4"',
    },
    options = with_engine(JSON,
      { name = "--explain", help = "show the journey of every value: placements, collectives at marks, uneven shares" },
      { name = "--text", help = "print the static program" },
      { name = "--topo", value = "FILE", many = true, help = "plan for a recorded machine; may be given several times" },
      { name = "--assume", value = "gpu=NAME", many = true, help = "what the GPUs are, where the topology does not say: gpu=h100-sxm-80gb" },
      { name = "--manifest", value = "FILE", help = "place on the devices of this manifest and refuse drift (exit 4); written when it is not there" },
      { name = "--accept-drift", help = "take what has changed, and write the manifest anew" },
      { name = "--svg", value = "FILE", help = "draw the machine with the placement on it" },
      { name = "--diff", value = "FILE", help = "say what going over to the plan of this deploy.lua takes" },
      { name = "--emit", value = "TARGET", oneof = { "vllm", "sglang", "trtllm", "k8s", "slurm", "env" },
        help = "print the same placement for another engine or scheduler" },
      { name = "--why-not", value = "TEXT", help = "say which rule or price another cut lost by" }),
  },
  {
    name = "topo", module = "tpl.cli.topo", group = "Look before you load",
    summary = "show the devices of a machine, how they are joined, and which belong together",
    usage = "tpl topo [--from FILE]... [--record] [--measure] [--svg FILE] [--json]",
    about = [[
Shows this machine, or what files say of another: nvidia-smi topo -m, topo -p2p, -L, -q, nvlink; NCCL topology XML; lstopo XML; slurmd -G; a record.
Several files are merged. What the input does not tell is said to be unknown; what it contradicts is listed under doubts. suggest names the best
pairs and groups of four: NVLink before PCIe, near before far, one socket before two.
]],
    examples = { "tpl topo", "tpl topo --from paste.txt --svg box.svg", "tpl topo --record > box.yaml", "tpl topo --from a.topo.txt --from a.smiL.txt --json" },
    options = { JSON,
      { name = "--from", value = "FILE", many = true, help = "read this file instead of the machine; may be given again" },
      { name = "--record", help = "print a record (YAML), for plans, specs and reports" },
      { name = "--measure", help = "measure every pair, both ways, with the data checked" },
      { name = "--svg", value = "FILE", help = "draw a picture" } },
  },
  {
    name = "verify", module = "tpl.cli.verify", target = true, group = "Look before you load",
    summary = "run the layout against one rank and name the first op that differs",
    usage = "tpl verify FILE|MODEL [key=value ...] [--json]",
    about = [[
Runs act=f32 unless told otherwise. Exit 5 when something differs: the op, rank and axis are named. TPL_FAULT=kind:rank:op:step plants a
fault that it must find (trailing fields may be left out, * is any; op as in plan --text). Kinds: swap_shard shift_partition
drop_all_reduce double_all_reduce wrong_gather_order wrong_piece bias_on_all_ranks wrong_head_map unpermuted_rope stale_position
mask_off_by_one stale_page shift_vocab skip_op; and stall, which the watchdog ends.
]] .. WORDS,
    examples = { "tpl verify examples/hello.lua tp=3", "tpl verify smollm2 tp=2 layout=megatron_sp --json" },
    options = with_engine(JSON),
  },
  {
    name = "generate", module = "tpl.cli.generate", target = true, rows = true, group = "Rows in, rows out",
    summary = "continue many prompts together",
    usage = "tpl generate FILE|MODEL [key=value ...] --in FILE.jsonl",
    about = [[
In:  {"id","prompt"|"messages"|"ids","max_tokens","temperature","top_k","top_p","min_p","repetition_penalty","frequency_penalty",
      "presence_penalty","logit_bias":{"id":x},"seed","stop":[..],"ignore_eos","logprobs":n}
Out: {"id","prompt_ids","ids","text","finish":"stop|length","ttft_us","itl_us":{"p50","p99"}}
temperature is 0 and max_tokens is up to want.context unless given. All rows run together.
]],
    examples = { [[echo '{"id":"a","prompt":"Once upon a time","max_tokens":8}' | tpl generate smollm2 --in -]] },
    options = with_engine(IN),
  },
  {
    name = "score", module = "tpl.cli.score", target = true, rows = true, group = "Rows in, rows out",
    summary = "give the log probability of every token of a text",
    usage = "tpl score FILE|MODEL [key=value ...] --in FILE.jsonl [--top K]",
    about = [=[
In:  {"id","ids"|"text"}
Out: {"id","ids","logprobs":[null,..],"greedy":[bool],"top":[[{"id","logprob"}]],"sum"}
]=],
    examples = { [[echo '{"id":"a","text":"The sky is blue"}' | tpl score smollm2 --in - --top 3]] },
    options = with_engine(IN, { name = "--top", value = "K", number = { 0, 20 }, default = 0, help = "best ids at each position" }),
  },
  {
    name = "logits", module = "tpl.cli.logits", target = true, rows = true, group = "Rows in, rows out",
    summary = "write the logits of every position as .npy",
    usage = "tpl logits FILE|MODEL [key=value ...] --in FILE.jsonl --out DIR [--positions all|last] [--chunk N] [--together]",
    about = [[
In:  {"id","ids"|"text"}
Out: {"id","file","rows","vocab","argmax":[..],"plan_hash","isa"}, and DIR/<id>.npy: float32 [positions, vocab], row i after ids[0..i]
]],
    examples = { [[echo '{"id":"a","ids":[1,2,3]}' | tpl logits smollm2 act=f32 --in - --out logits]] },
    options = with_engine(IN, OUT,
      { name = "--positions", value = "all|last", oneof = { "all", "last" }, default = "all", help = "which rows to write" },
      { name = "--chunk", value = "N", number = { 1, 65536 }, help = "most prompt tokens of a sequence in one step" },
      { name = "--together", help = "put all inputs into shared steps" }),
  },
  {
    name = "tap", module = "tpl.cli.tap", target = true, rows = true, group = "Rows in, rows out",
    summary = "write values inside the model as .npy",
    usage = "tpl tap FILE|MODEL [key=value ...] --at 'blk.3.*' --in FILE.jsonl --out DIR",
    about = [[
In:  {"id","ids"|"text"}
Out: {"id","name","dims","placement","op","rank_shapes","file"} for each value that --at names, recombined over the ranks
]],
    examples = { [[echo '{"id":"a","ids":[1,2,3]}' | tpl tap smollm2 tp=3 --at 'blk.0.*' --in - --out taps]] },
    options = with_engine(IN, OUT, { name = "--at", value = "GLOB", needed = true, help = "names of values; * stands for any text" }),
  },
  {
    name = "sample", module = "tpl.cli.sample", rows = true, group = "Rows in, rows out",
    summary = "apply sampling parameters to logits",
    usage = "tpl sample --in FILE.jsonl",
    about = [[
In:  {"logits":[x|null,..],"prior":[id,..],"params":{..},"order":[..]}
Out: {"id","kept":[id,..],"probs":[x,..]}   null is minus infinity; kept is best first, equal ones by id
]],
    examples = { [[echo '{"logits":[1,2,3],"params":{"top_k":2}}' | tpl sample --in -]] },
    options = { IN },
  },
  {
    name = "tokenize", module = "tpl.cli.tokenize", rows = true, group = "Rows in, rows out",
    summary = "turn text into token ids",
    usage = "tpl tokenize --model M|--file tokenizer.json|x.gguf --in FILE.jsonl",
    about = [[
In:  {"text"|"bytes_hex","special":true,"bos":true}
Out: {"id","ids":[..]}   special: spellings of control tokens are tokens; bos: add what the post-processor adds
]],
    examples = { [[echo '{"text":"Hello"}' | tpl tokenize --model smollm2 --in -]] },
    options = { IN,
      { name = "--model", value = "M", help = "a model: path, org/name, or a name in the model cache" },
      { name = "--file", value = "FILE", help = "tokenizer.json or a .gguf, which needs no tensors" } },
  },
  {
    name = "detokenize", module = "tpl.cli.tokenize", rows = true, group = "Rows in, rows out",
    summary = "turn token ids into text, as it is streamed",
    usage = "tpl detokenize --model M|--file tokenizer.json|x.gguf --in FILE.jsonl",
    about = [[
In:  {"ids":[..],"skip_special":true,"prompt":n}
Out: {"id","text","chunks":[..],"tail"}   prompt: the first n ids only give context
]],
    examples = { [[echo '{"ids":[19556]}' | tpl detokenize --model smollm2 --in -]] },
    options = { IN,
      { name = "--model", value = "M", help = "a model: path, org/name, or a name in the model cache" },
      { name = "--file", value = "FILE", help = "tokenizer.json or a .gguf, which needs no tensors" } },
  },
  {
    name = "template", module = "tpl.cli.template", rows = true, group = "Rows in, rows out",
    summary = "render chat templates, or bare Jinja snippets",
    usage = "tpl template [--model M|--file x.jinja] --in FILE.jsonl",
    about = [[
In:  {"messages","tools","add_generation_prompt","continue_final_message","kwargs","now","bos_token","eos_token"},
     or {"template","vars"} with neither option
Out: {"id","prompt"} or {"id","error":{"code","message"}}
]],
    examples = { [[echo '{"template":"{{ x + 1 }}","vars":{"x":2}}' | tpl template --in -]] },
    options = { IN,
      { name = "--model", value = "M", help = "the template of this model" },
      { name = "--file", value = "x.jinja", help = "a template file" } },
  },
  {
    name = "bench", module = "tpl.cli.bench", target = true, target_optional = true, group = "Measure",
    summary = "measure the machine (probe) or a model on it",
    usage = "tpl bench [probe | FILE|MODEL [key=value ...] [--prompt N] [--new N] [--batch N] [--depth N] [--runs N]] [--json]",
    about = [[
`tpl bench [probe]` measures read bandwidth and matrix peak, and stores them in the cache folder: `tpl run` compares with them.
With a FILE or MODEL: prefill and decode speed, memory, allocations and syncs.
]] .. WORDS,
    examples = { "tpl bench probe", "tpl bench smollm2 tp=2 --prompt 128 --new 32 --json" },
    options = with_engine(JSON,
      { name = "--prompt", value = "N", number = { 1, 2 ^ 20 }, default = 128, help = "prompt tokens of each sequence (128)" },
      { name = "--new", value = "N", number = { 1, 2 ^ 20 }, default = 32, help = "tokens to generate (32)" },
      { name = "--batch", value = "N", number = { 1, 4096 }, default = 1, help = "sequences at once (1)" },
      { name = "--depth", value = "N", number = { 0, 2 ^ 20 }, default = 0, help = "tokens already in the cache (0)" },
      { name = "--runs", value = "N", number = { 1, 1000 }, default = 3, help = "runs; the median counts (3)" }),
  },
  {
    name = "doctor", module = "tpl.cli.doctor", most_names = 1000, group = "Measure",
    summary = "check a multi-GPU host for known traps, with the fix of each",
    usage = "tpl doctor [--nccl-log FILE] [--k8s FILE] [--root DIR] [--bundle FILE] [--json] [FILE|MODEL [tp=N] ...]",
    about = [[
Each check says ok, warn, fail, or skip with the reason; exit 1 when any failed. --root DIR is a recorded tree: proc, sys, etc and dev
as on the host (proc/self/environ, or lines NAME=VALUE in DIR/env, is its environment; DIR/topo.yaml or DIR/topo.txt its topology). A
tree that keeps no environment is checked with that of tpl. TPL_NVML names another NVML library.
]],
    codes = true,
    examples = {
      "tpl doctor", "tpl doctor --nccl-log nccl.log", "tpl doctor --k8s deployment.yaml", "tpl doctor org/name tp=3",
      "tpl doctor --bundle report.yaml", "tpl doctor --root report.yaml",
    },
    options = { JSON,
      { name = "--nccl-log", value = "FILE", help = "a log of NCCL_DEBUG=INFO: transport and GPUDirect RDMA of each pair" },
      { name = "--k8s", value = "FILE", help = "Kubernetes manifests: GPUs, exclusive cores, /dev/shm" },
      { name = "--root", value = "DIR", help = "a recorded tree or a bundle in place of this machine" },
      { name = "--bundle", value = "FILE", help = "write what was read, redacted; --root FILE checks it again" } },
  },
  {
    name = "fuzz-layouts", module = "tpl.cli.fuzz_layouts", group = "Other",
    summary = "try random layouts of random small models against one rank",
    usage = "tpl fuzz-layouts [--draws N] [--seed S] [--first N] [--json]",
    about = [[
Draws a model, a mesh and a layout; each layout that the planner accepts must give what one rank gives, in every op on every rank. Prints
which rules and reshards the accepted ones used. Exit 5 when one differs: it is printed, with the smallest that still fails. A draw
depends on its seed and number only. No weights are read and no engine runs; `tpl verify` checks one layout on a real model.
]],
    examples = { "tpl fuzz-layouts", "tpl fuzz-layouts --seed 7 --draws 20000 --json", "tpl fuzz-layouts --seed 1 --first 1271 --draws 1" },
    options = {
      JSON,
      { name = "--draws", value = "N", number = { 1, 2 ^ 30 }, default = 3000, help = "how many (3000)" },
      { name = "--seed", value = "S", number = { 0, 2 ^ 53 }, help = "another sequence of draws (1; also TPL_SEED)" },
      { name = "--first", value = "N", number = { 1, 2 ^ 30 }, default = 1, help = "number of the first draw (1)" },
    },
  },
  {
    name = "test-policy", module = "tpl.cli.test_policy", most_names = 1, group = "Other",
    summary = "try a placement policy on machines that you do not own",
    usage = "tpl test-policy FILE [--random N] [--seed S] [--topo FILE]... [--out DIR] [--json]",
    about = [[
Draws machines (NVLink pairs, switches, cube meshes, PCIe trees, CPU nodes, with MIG, busy, lost and unknown devices, one host or several), gives
each a model, and checks what any sane policy does: no device twice, none that is unusable, no change by device indices or by devices it
did not choose, weights that fit, and so on. Prints the kinds of machine drawn. A machine on which a property breaks is shrunk and saved as a
topology record; exit 3. A policy that finds no place returns nil and the reason. One that breaks unchosen_free, worse_link or one_model_in_group on
purpose says so: return { place = f, except = { unchosen_free = "why" } }. A draw depends on its seed and number only.
]],
    examples = { "tpl test-policy my.lua --random 2000", "tpl test-policy my.lua --topo my-index_free-1-10.yaml", "tpl test-policy auto --seed 7 --json" },
    options = {
      JSON,
      { name = "--random", value = "N", number = { 1, 2 ^ 30 }, default = 500, help = "how many machines (500)" },
      { name = "--seed", value = "S", number = { 0, 2 ^ 53 }, help = "another sequence of draws (1; also TPL_SEED)" },
      { name = "--first", value = "N", number = { 1, 2 ^ 30 }, default = 1, help = "number of the first draw (1)" },
      { name = "--topo", value = "FILE", many = true, help = "try this recorded machine, with every imagined model, instead of drawing" },
      { name = "--out", value = "DIR", default = ".", help = "folder for the machines that fail (the working folder)" },
    },
  },
  {
    name = "lua", module = "tpl.cli.lua", raw = true, group = "Other",
    summary = "run a Lua file with the library at hand",
    usage = "tpl lua FILE [argument ...]",
    about = 'The file can require "tpl" and sees tpl, R and S; its arguments are in arg. Exit 3 when it fails.\n',
    examples = { "tpl lua my_layout_test.lua" },
    options = {},
  },
  {
    name = "env", module = "tpl.cli.env", group = "Other",
    summary = "print shell lines that set PATH, LUA_PATH and LUA_CPATH",
    usage = 'eval "$(tpl env)"',
    about = 'After this `require "tpl"` works in luajit and under busted.\n',
    examples = { 'eval "$(build/tpl env)"' },
    options = {},
  },
  {
    name = "version", module = "tpl.cli.version", group = "Other",
    summary = "say what this build is and can do",
    usage = "tpl version [--json]", about = "", examples = { "tpl version", "tpl version --json" },
    options = { JSON },
  },
  {
    name = "help", module = "tpl.cli.help", most_names = 1, group = "Other",
    summary = "explain a command",
    usage = "tpl help [COMMAND]", about = "", examples = { "tpl help", "tpl help plan" },
    options = {},
  },
}

--- Commands that a later version brings: they exit 2 with `not in this version`.
M.later = {
  "repl", "chat", "sim", "check", "serve", "reload", "top", "try", "trace", "experts",
  "complete", "completion",
}

--- Give a command by name.
function M.find(name)
  for _, command in ipairs(M.list) do
    if command.name == name then return command end
  end
end

--- List the names of all commands of this version.
function M.names()
  local names = {}
  for i, command in ipairs(M.list) do names[i] = command.name end
  return names
end

return M
