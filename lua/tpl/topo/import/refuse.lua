-- SPDX-License-Identifier: Apache-2.0
--- Know inputs that look like a topology and are none that tpl reads, by name: other vendors' tools, and other outputs of the same tools.
local M = {}

--- What is accepted, for the hints of errors.
M.accepted = "accepted: nvidia-smi topo -m, topo -p2p, -L, -q, nvlink -s, nvlink -R; NCCL topology XML; "
  .. "lstopo XML or text; slurmd -G; a record of tpl (YAML, JSON)"

-- {what it is, patterns of which any one shows it}. Only words that the tools print themselves, not their names in a sentence or prompt.
local others = {
  { "output of amd-smi (AMD)", "LINK TYPE TABLE", "WEIGHT TABLE:", "HOPS TABLE:", "NUMA BW TABLE" },
  { "output of rocm-smi (AMD)", "ROCm System Management", "ROCm SMI Log", "%f[%w]XGMI%f[%W]", "Weight between two GPUs", "Hops between two GPUs",
    "Link Type between two GPUs", "Link Hops Count" },
  { "a table of Moore Threads GPUs", "MTHREADS", "Moore Threads", "MTLink", "%f[%w]MTT S%d" },
  { "output of npu-smi (Huawei)", "%f[%w]HCCS%f[%W]", "NPU%d+%s+X%s", "npu%-smi %d" },
  { "output of xpu-smi (Intel)", "GPU %d+/%d+%s+GPU %d+/%d+", "Xe Link" },
  { "output of mx-smi (MetaX)", "mx%-smi%s+version", "MetaX%s+System%s+Management", "%f[%w]MX%d*%s+MX%d*%s" },
  { "output of cnmon (Cambricon)", "CNMON", "%f[%w]MLU%d+%s+X%s" },
  { "output of hl-smi (Gaudi)", "HL%-SMI" },
  { "output of ixsmi (Iluvatar)", "IX%-ML" },
  { "output of hy-smi (Hygon)", "HY%-SMI", "DCU System Management" },
  { "a NCCL graph file, not a topology: give the file that NCCL_TOPO_DUMP_FILE wrote", "^[^<]*<graphs[%s>]", "\n[ \t]*<graphs[%s>]" },
  { "nvidia-smi -q in XML: give nvidia-smi -q without -x", "<nvidia_smi_log>" },
}

-- Commands of other tools, some of which print the very words of nvidia-smi. Not where a shell says that it does not know them.
local commands = { "mthreads%-gmi topo", "ixsmi topo", "mx%-smi topo", "npu%-smi info %-t topo", "xpu%-smi topology", "cnmon topo",
  "hy%-smi %-%-showtopo",
  "rocm%-smi %-%-showtopo", "amd%-smi topology" }

--- Name what a text is when it is known and not accepted.
---@param text string  clean text
---@return string?
function M.named(text)
  for _, o in ipairs(others) do
    for i = 2, #o do
      if text:find(o[i]) then return o[1] end
    end
  end
  for _, c in ipairs(text:find("not found", 1, true) and {} or commands) do
    local command = text:match(c)
    if command then return "output of " .. command end
  end
  if text:find("|%s*Device %d+%s*|") and text:find("Device 0%s*|%s*X%s*|") then
    return "a table of a tool that calls its GPUs \"Device N\" (gpustack?)"
  end
  return nil
end

--- Name what a text is that no importer found anything in.
---@param text string
---@return string?
function M.hint_at(text)
  if text:find("NVIDIA%-SMI %d+%.%d+") then return "the overview that plain nvidia-smi prints, which has no topology" end
  if text:find("couldn't communicate with the NVIDIA driver") then return "an error message of nvidia-smi: the driver does not answer" end
  if text:find("command not found") or text:find("not recognized as") then return "an error message of a shell: nvidia-smi was not found" end
  if text:find("No devices were found") then return "nvidia-smi saying that there are no devices" end
  if text:find("NCCL INFO") then return "a NCCL log: tpl doctor --nccl-log reads it" end
  if not text:find("%S") then return "empty" end
  return nil
end

return M
