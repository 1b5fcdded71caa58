-- SPDX-License-Identifier: Apache-2.0
--- Write the seeds of the sweep and of the fuzz programs to spec/fuzz/seeds/: small files that use much of each format.
---   eval "$(build/tpl env)"; LUA_PATH="./?.lua;$LUA_PATH" luajit spec/fuzz/make_seeds.lua
-- Texts and vocabularies are our own; the parts of tokenizers are those of spec/fixtures/tokenizer, with a vocabulary of a few tokens.
local core = require("tpl.core")
local gguf = require("spec.support.gguf_writer")
local json = require("tpl.json")
local safetensors = require("spec.support.safetensors_writer")
local slurp = require("spec.support.files").slurp

local root = "spec/fuzz/seeds/"

local function write(name, bytes)
  local path = root .. name
  assert(core.sys.mkdir_p(path:match("^(.*)/")))
  assert(core.sys.write_file(path, bytes))
end

-- -- GGUF ------------------------------------------------------------------------------------------------------------

local llama = {
  { "general.architecture", "str", "llama" }, { "general.name", "str", "tiny" }, { "llama.block_count", "u32", 1 },
  { "llama.context_length", "u32", 64 }, { "llama.embedding_length", "u32", 8 }, { "llama.feed_forward_length", "u32", 16 },
  { "llama.attention.head_count", "u32", 2 }, { "llama.attention.head_count_kv", "array", "u32", { 1 } },
  { "llama.attention.layer_norm_rms_epsilon", "f32", 1e-5 }, { "llama.rope.freq_base", "f32", 10000 },
  { "llama.rope.dimension_count", "u32", 4 },
}

local function with(more)
  local kv = {}
  for _, list in ipairs { llama, more } do
    for _, x in ipairs(list) do kv[#kv + 1] = x end
  end
  return kv
end

local function tensors(vocab)
  return {
    { name = "token_embd.weight", dtype = "f16", dims = { vocab, 8 } }, { name = "output_norm.weight", dtype = "f32", dims = { 8 } },
    { name = "blk.0.attn_q.weight", dtype = "f32", dims = { 8, 8 } }, { name = "rope_freqs.weight", dtype = "f32", dims = { 2 }, data = gguf.f32(1) .. gguf.f32(8) },
  }
end

local bpe_tokens = { "a", "b", "c", "\196\160", "ab", "\196\160ab", "abc", "<|end|>", "<|im_end|>", "" }
write("gguf/bpe.gguf", gguf.build {
  kv = with {
    { "tokenizer.ggml.model", "str", "gpt2" }, { "tokenizer.ggml.pre", "str", "smollm" }, { "tokenizer.ggml.tokens", "array", "str", bpe_tokens },
    { "tokenizer.ggml.token_type", "array", "i32", { 1, 1, 1, 1, 1, 1, 1, 3, 4, 5 } },
    { "tokenizer.ggml.merges", "array", "str", { "a b", "\196\160 ab", "ab c" } },
    { "tokenizer.ggml.bos_token_id", "u32", 7 }, { "tokenizer.ggml.eos_token_id", "u32", 8 }, { "tokenizer.ggml.add_bos_token", "bool", true },
    { "tokenizer.chat_template", "str", "{{ messages[0].content }}" },
  },
  tensors = tensors(10),
})

local spm_tokens = { "<unk>", "<s>", "</s>", "<0x0A>", "<0xFF>", "\226\150\129", "a", "b", "\226\150\129a", "ab" }
write("gguf/spm.gguf", gguf.build {
  align = 64,
  kv = with {
    { "tokenizer.ggml.model", "str", "llama" }, { "tokenizer.ggml.tokens", "array", "str", spm_tokens },
    { "tokenizer.ggml.token_type", "array", "i32", { 2, 3, 3, 6, 6, 1, 1, 1, 1, 1 } },
    { "tokenizer.ggml.scores", "array", "f32", { 0, 0, 0, 0, 0, -1, -2, -3, -4, -5 } },
    { "tokenizer.ggml.bos_token_id", "u32", 1 }, { "tokenizer.ggml.eos_token_id", "u32", 2 }, { "tokenizer.ggml.unknown_token_id", "u32", 0 },
    { "tokenizer.ggml.add_space_prefix", "bool", true }, { "llama.rope.scaling.type", "str", "linear" }, { "llama.rope.scaling.factor", "f32", 2 },
  },
  tensors = tensors(10),
})

local types = { { "llama.vocab_size", "u32", 10 } }
for _, t in ipairs { "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "u64", "i64", "f64" } do
  types[#types + 1] = { "one." .. t, t, 1 }
  types[#types + 1] = { "list." .. t, "array", t, { 0, 1, 1 } }
end
local blocks = {}
for _, t in ipairs { "q4_0", "q4_1", "q5_0", "q8_0", "q4_k", "q6_k", "iq4_nl", "bf16", "i8", "i64" } do
  blocks[#blocks + 1] = { name = "w." .. t, dtype = t, dims = { 1, gguf.types[t][2] } }
end
write("gguf/types.gguf", gguf.build { version = 2, kv = with(types), tensors = blocks })

-- -- safetensors -----------------------------------------------------------------------------------------------------

local all = {}
for name in pairs(safetensors.sizes) do all[#all + 1] = { name = "model.layers.0." .. name, dtype = name, dims = { 2, 1 } } end
table.sort(all, function(a, b) return a.name < b.name end)
all[#all + 1] = { name = "scalar", dtype = "F32", dims = {} }
all[#all + 1] = { name = "empty", dtype = "F32", dims = { 0, 3 } }
write("safetensors/types.safetensors", safetensors.build(all, { metadata = { format = "pt" } }))
write("safetensors/escapes.safetensors", safetensors.raw(
  [[{"\u0061\/b\ud83d\ude00":{"data_offsets":[2,4],"shape":[2],"dtype":"U8"} , "second" : {"dtype":"U8","shape":[1,1,2],"data_offsets":[0,2]}}  ]], "1234"))

-- -- JSON ------------------------------------------------------------------------------------------------------------

write("json/config.json", [[{
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
  "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-05, "hidden_act": "silu",
  "rope_theta": 10000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
  "original_max_position_embeddings": 32}, "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false, "bos_token_id": 1,
  "eos_token_id": [2, 3], "torch_dtype": "bfloat16"}
]])
write("json/new_config.json", [[{"architectures": ["LlamaForCausalLM"], "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
"num_attention_heads": 4, "max_position_embeddings": 128, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5,
"partial_rotary_factor": 0.5}, "dtype": "float16", "eos_token_id": 2, "bos_token_id": null}]])

-- -- YAML and topologies ---------------------------------------------------------------------------------------------

write("yaml/forms.yaml", [[%YAML 1.2
---
plain: text, with "quotes"
"quoted key": 'single '' and "double"'
escapes: "\x41\u00e9\U0001F600\0\t"
numbers: [0, -1, 0x1F, 0o17, 1.5, -2e-3, .5, 12345678901]
words: [~, null, true, FALSE, yes, "no"]
tags: [!!str 5, !!int "7", !!float 1, !!null "", ! x]
literal: |+
  one
   two

folded: >-
  a
  b

  c
? explicit
: - - nested
  - {a: [], b: {}, ? c : d}
...
--- # second
- 1
---
]])
write("yaml/pod.yaml", [[apiVersion: v1
kind: Pod
metadata: {name: "x"}
spec:
  containers:
  - name: a
    args: ["--tp", "2"]
    resources: {limits: {nvidia.com/gpu: 2, memory: 64Gi}}
---
kind: Service
]])
for _, name in ipairs { "h200-nvswitch-4.nccl.xml", "bridges-crossed-4.nccl.xml", "faults.nccl.xml", "two-trays-mnnvl.nccl.xml", "busid-only-5.nccl.xml",
  "nvswitch-4.hwloc.xml", "cpu-nvlink-4.hwloc.xml", "hwloc1-numa-parents-2.hwloc.xml", "reference-host-mig.yaml", "measured-pair.json" } do
  write("topology/" .. name, assert(slurp("spec/fixtures/topologies/" .. name)))
end

-- -- Tokenizers ------------------------------------------------------------------------------------------------------

local small_bpe = [==[{"type":"BPE","unk_token":%s,"fuse_unk":%s,"byte_fallback":%s,"vocab":{"<unk>":0,"<s>":1,"</s>":2,"a":3,"b":4,"c":5,
"\u0120":6,"\u2581":7,"ab":8,"\u0120ab":9,"\u2581a":10,"abc":11,"1":12,"<0x41>":13},"merges":[["a","b"],"\u0120 ab",["\u2581","a"],["ab","c"]]}]==]
local small_unigram = [==[{"type":"Unigram","unk_id":0,"byte_fallback":true,"vocab":[["<unk>",0.0],["<s>",0],["</s>",0],["\u2581",-1.5],["a",-2],["b",-2.25],
["ab",-3],["\u2581a",-2.75],["<0x0A>",-9],["c",-4e0]]}]==]

local function part(fixture, name)
  local value = fixture[name]
  return value == json.null and "null" or json.encode(value)
end

local function tokenizer_json(fixture, model)
  local text = ([[{"version":"1.0","truncation":null,"padding":null,
"added_tokens":[{"id":1,"content":"<s>","special":true,"lstrip":false,"rstrip":true,"single_word":false,"normalized":false},
{"id":20,"content":"word","special":false,"single_word":true,"lstrip":true,"rstrip":false,"normalized":true}],
"normalizer":%s,
"pre_tokenizer":%s,
"post_processor":%s,
"decoder":%s,
"model":%s}]]):gsub("%%s", "\1")
  local values = { part(fixture, "normalizer"), part(fixture, "pre_tokenizer"), part(fixture, "post_processor"), part(fixture, "decoder"), model }
  local i = 0
  return (text:gsub("\1", function()
    i = i + 1
    return values[i]
  end))
end

for _, name in ipairs { "deepseek", "gpt2", "llama3", "o200k", "precompiled", "punctuation", "regex" } do
  local fixture = json.decode(assert(slurp("spec/fixtures/tokenizer/" .. name .. ".json")), { typed = true })
  local byte_level = json.encode(fixture.pre_tokenizer):find("ByteLevel", 1, true) ~= nil
  if name == "llama3" or name == "regex" then fixture.post_processor = json.null end -- they name ids that are not here
  write("tokenizer/" .. name .. ".json",
    tokenizer_json(fixture, small_bpe:format(byte_level and "null" or '"<unk>"', tostring(not byte_level), tostring(not byte_level))))
end
local unigram = json.decode(assert(slurp("spec/fixtures/tokenizer/unigram.json")), { typed = true })
write("tokenizer/unigram.json", tokenizer_json(unigram, small_unigram))
unigram.post_processor = json.decode('{"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",1],"trim_offsets":true,"add_prefix_space":true}')
unigram.pre_tokenizer = json.decode('{"type":"Split","pattern":{"Regex":"(?=b)|\\\\p{L}+?|[^a\\\\s]{1,3}$"},"behavior":"MergedWithNext","invert":true}')
write("tokenizer/roberta.json", tokenizer_json(unigram, small_unigram))

-- -- Templates -------------------------------------------------------------------------------------------------------

for _, name in ipairs { "chatml", "parts", "schema", "strict", "turns" } do
  write("template/" .. name .. ".jinja", assert(slurp("spec/fixtures/template/" .. name .. ".jinja")))
end
write("template/macros.jinja", [==[
{%- macro show(x, pre='- ') -%}{{ pre ~ x ~ varargs|length ~ kwargs.items()|list|tojson }}{{ caller() if caller }}{%- endmacro -%}
{%- set ns = namespace(n=0, last=none) %}
{% for m in messages recursive -%}{%- set ns.n = ns.n + loop.index0 * 2 ** 3 // 2 % 7 %}
{% call show(m.role, 'a', 1, k=2) %}{{ m['content'] if m.content is string else m.content | map(attribute='text') | join(', ') }}{% endcall %}
{%- if loop.first and not loop.last or m.role in ['x', 'y'] %}{% continue %}{% elif ns.n > 5 %}{% break %}{% endif %}{% else %}none{% endfor %}
{% filter upper %}{{ "%s %d %.2f"|format('a', 3, 2.5) }}{{ '%05d' % 42 }}{{ "{:>5}".format('x') }}{% endfilter %}
{{ [3,1,2]|sort|reverse|list }}{{ range(3)|batch(2, 0)|list }}{{ dict(a=1)|dictsort }}{{ "a b".split()|first }}{{ 'x'*3 }}{{ 1.5|round }}{{ tools|tojson(indent=2) if tools }}
{%- set x = 'abc'[::-1][1:] %}{{ x|replace('b', 'z')|trim|title|indent(2) }}{{ strftime_now('%Y') }}{% raw %}{{ x }}{% endraw %}{{ '<b>'|e }}{{ {'a': [1, (2, 3)]}|string }}
{% generation %}{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list|length }}{% endgeneration %}
]==])
