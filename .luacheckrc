std = "luajit"
max_line_length = 180
exclude_files = { "build", "build-*", ".cache" }
files["spec"] = { std = "luajit+busted" }
-- Users' files run with the globals tpl, R and S.
files["examples"] = { read_globals = { "tpl", "R", "S" } }
files["policies"] = { read_globals = { "tpl", "R", "S" } }
files["lua/tpl/layouts"] = { read_globals = { "tpl", "R", "S" } }
files["lua/tpl/models"] = { read_globals = { "tpl", "R", "S" } }
-- Declarations for editors: generated, without bodies.
files["lua/tpl/_meta"] = { ignore = { "212", "211", "241", "231" }, max_line_length = false }
