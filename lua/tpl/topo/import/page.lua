-- SPDX-License-Identifier: Apache-2.0
--- Turn pasted text into clean lines: what terminals, editors, chat windows, log collectors and web pages add is taken away
--- before any importer looks at a line. Line numbers stay those of the file.
---
--- Contents: bytes of the whole text (M.clean) - prefixes of a line - lines and hosts (M.read)
local M = {}

-- Longer lines are in none of the texts that are read; the limit keeps patterns that search backwards cheap.
local max_line = 8192

-- -- Bytes -----------------------------------------------------------------------------------------------------------

-- UTF-16 with a byte order mark, as PowerShell's ">" writes it; characters outside ASCII become "?".
local function from_utf16(text)
  local little = text:sub(1, 2) == "\255\254"
  if not little and text:sub(1, 2) ~= "\254\255" then return text end
  local out = {}
  for i = 3, #text - 1, 2 do
    local low, high = text:byte(little and i or i + 1), text:byte(little and i + 1 or i)
    out[#out + 1] = high == 0 and low < 128 and string.char(low) or "?"
  end
  return table.concat(out)
end

-- Blanks of Unicode, in UTF-8: no-break space, en and em spaces, narrow no-break, ideographic; zero-width ones vanish.
local unicode = {
  { "\194\160", " " }, { "\226\128[\128-\138]", " " }, { "\226\128[\139-\141]", "" }, { "\226\128\175", " " },
  { "\227\128\128", " " }, { "\239\187\191", "" }, { "&nbsp;", " " }, { "&#9;", "\t" },
  { "\226\148\130", "|" }, { "\226\149\145", "|" }, { "\226\128[\144-\148]", "-" },
}

-- Escape sequences of terminals: real ones, then those whose ESC byte was written out or got lost.
local escapes = {
  "\27%[[%d;:?]*[@-~]", "\27%][^\7\27]*\7", "\27[()][%w]", "\27%]?", "%^%[%[[%d;]*m",
  "\\u001[bB]%[[%d;]*m", "\\x1[bB]%[[%d;]*m", "\\0?33%[[%d;]*m", "\\e%[[%d;]*m",
}

--- Give the text with one kind of line end and one kind of blank, without escape sequences and byte order marks.
---@param text string
---@return string
function M.clean(text)
  text = from_utf16(text)
  for _, pattern in ipairs(escapes) do text = text:gsub(pattern, "") end
  text = text:gsub("%[%d[%d;]*m", "")
  for _, u in ipairs(unicode) do text = text:gsub(u[1], u[2]) end
  text = text:gsub("\r\n", "\n"):gsub("\r", "\n"):gsub("%z", "")
  -- A text that went through a JSON string or a %q print: tabs and line ends are written out.
  if text:find("GPU%d+\\t") then text = text:gsub("\\r", ""):gsub("\\n", "\n"):gsub("\\t", "\t") end
  return text
end

-- -- Prefixes of a line ----------------------------------------------------------------------------------------------

-- What log collectors put before a line. Each takes at most one blank behind it, so that a leading tab stays.
local prefixes = {
  "^%[?%d%d%d%d%-%d%d%-%d%d[T ]%d%d:%d%d:%d%d[%d%.,]*Z?[+%-]?[%d:]*%]?:? ?",           -- 2025-01-31T10:00:00.123Z
  "^std[oe][ur][tr] [FP] ",                                                             -- container runtime, after the time
  "^%a%a%a [ %d]%d %d%d:%d%d:%d%d [%w%._%-]+ [%w%._/%-]+%[?%d*%]?: ?",                   -- journal and syslog
  "^%[?%d%d:%d%d:%d%d[%.,%d]*%]? ",                                                     -- time of day
  "^%[%s*%d+%.%d+%] ?",                                                                 -- seconds since start
  "^%[pod/[^%]]+%] ?", "^%[[%d,]+%]<std%a+>: ?", "^%(%a[%w ]*pid=%d+[^)]*%) ?",          -- kubectl, mpirun, ray
  "^%[?[IWED][NARE][FRB][OINU]%a*%]?:? ?", "^[%w_%-]+%-%d+ +| ",                        -- INFO, WARN, ..; compose
  "^>+ ?",                                                                              -- a quoted mail or comment
}

local function strip(line)
  local cut = false
  for _ = 1, 3 do
    local before = line
    for _, p in ipairs(prefixes) do line = line:gsub(p, "", 1) end
    if line == before then break end
    cut = true
  end
  return line, cut
end

-- A table drawn with bars, or comma separated: bars and commas between cells become tabs.
local function unbox(line)
  if line:find("^%s*|") then
    if line:find("^[%s|:%-+]*$") then return "" end
    return (line:gsub("^%s*|%s*", ""):gsub("%s*|%s*$", ""):gsub("%s*|%s*", "\t"))
  end
  if line:find("^%s*\"?GPU%d+\"?%s*,") or line:find("^\"?\"?,\"?GPU%d+\"?,") then
    return (line:gsub("\"([^\"]*)\"", function(s) return (s:gsub(",", "\1")) end):gsub(",", "\t"):gsub("\1", ","))
  end
  return line
end

-- -- Lines and hosts -------------------------------------------------------------------------------------------------

local function looks_like_host(name)
  return #name <= 64 and name:find("^[%w][%w%.%-_]*$") and name:find("[%d%-%.]") and not name:find("^%-?[%d%.]+$")
    and not name:find("^nvidia") and not name:find("^[GN][PI][UC]%d") and not name:find("%.txt$") and not name:lower():find("topo")
    and not name:lower():find("nvlink") and not name:lower():find("p2p") and not name:find("smi")
end

-- Patterns of lines that name the host of what follows: prompts first, then titles that collection scripts print.
local function named_host(line)
  local at = line:match("^%S*%[?[%w_%-%.]+@([%w_%-%.]+)[:%s~].*[#$%%>]%s")
  if at then return at end
  for _, p in ipairs {
    "^[=#*%-%s>]*[Hh]ost%s*[Nn]?a?m?e?%s*[:=]%s*(%S+)", "^[=#*%-%s>]*[Nn]ode%s*[:=]?%s+(%S+)[%s=#*%-:<]*$", "^=+>?%s*(%S-)%s*:?<?=+$",
    "^%-%-+%s*(%S-)%s*%-+$", "^#+%s*(%S-):?$", "^%*+%s*(%S-)%s*%*+$", "^%[([%w%.%-_]+)%]$", "^([%w%.%-_]+):$", "^(%a[%w%.%-]*)$" } do
    local name = line:match(p)
    if name then
      name = name:gsub(":$", "")
      if looks_like_host(name) then return name end
    end
  end
  return nil
end

-- A terminal of fixed width broke every row of a table in the middle of words: rows that fill the width exactly are joined with the
-- next line, if there are three such rows and that line begins with no label.
local function join_hard_wraps(lines)
  local width, full = 0, {}
  for _, l in ipairs(lines) do
    if l.text:find("GPU%d") then width = math.max(width, #l.text) end
  end
  for i = 1, #lines - 1 do
    local text, follows = lines[i].text, lines[i + 1].text
    if #text == width and text:find("GPU%d") then
      if follows == "" or follows:find("^%s*[GN][PI][UC]%d+%s") or follows:find("^%s*mlx%d") then return nil end
      full[#full + 1] = i
    end
  end
  if width < 40 or #full < 3 then return nil end
  for _, i in ipairs(full) do
    lines[i].text, lines[i + 1].text = lines[i].text .. lines[i + 1].text, ""
  end
  return lines[full[1]].no
end

-- "node1: GPU0 ..." as pdsh and clush write it (srun -l: "0: ..."): names that stand before nearly every line.
local function line_prefix(lines)
  local count, names, total, most = 0, {}, 0, 0
  for _, l in ipairs(lines) do
    if l.text:find("%S") then
      total = total + 1
      local name = l.text:match("^([%w][%w%._%-]*): ?") or l.text:match("^(%d+): ?")
      if name and not name:find("^NIC%d+$") and not name:find("^GPU%d+$") and not name:find("^mlx") and not name:find("^slurm") and name ~= "NVML" then
        count, names[name] = count + 1, (names[name] or 0) + 1
        most = math.max(most, names[name])
      end
    end
  end
  return total >= 3 and count >= 0.8 * total and most >= 3
end

---@class tpl.topo.Line
---@field no integer    line of the file
---@field text string
---@field host string?  name of the host, where the text names one

---@class tpl.topo.Page
---@field name string          the file
---@field lines tpl.topo.Line[]
---@field joined integer?      first line that was joined with the next one
---@field stripped integer?    line of the first prefix of a log that was taken away

--- Read a text into clean lines.
---@param text string
---@param name string?
---@return tpl.topo.Page
function M.read(text, name)
  local page = { name = name or "topology", lines = {} }
  local no = 0
  for line in (M.clean(text) .. "\n"):gmatch("([^\n]*)\n") do
    no = no + 1
    if #line > max_line then line = line:sub(1, max_line) end
    local short, cut = strip(line)
    if cut and short:find("GPU%d") then page.stripped = page.stripped or no end
    if short:find("^%s*```") or short:find("^%s*~~~") then short = "" end
    local plain = unbox(short)
    page.lines[no] = { no = no, text = plain:find("%S") and plain or "" }
  end
  local by_line, host = line_prefix(page.lines), nil
  for _, l in ipairs(page.lines) do
    if by_line then
      local at, rest = l.text:match("^([%w][%w%._%-]*): ?(.*)$")
      l.host = at
      if at then l.text = rest end
    else
      host = named_host(l.text) or host
      l.host = host
    end
  end
  page.joined = join_hard_wraps(page.lines)
  return page
end

return M
