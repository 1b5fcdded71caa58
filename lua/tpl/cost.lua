-- stub
return { estimate=function() return {fits=true, kv_tokens=1e9, ranks={}} end, group=function() return {} end, collective=function() return 1 end, gpu=function() return nil end, other_bytes=function() return 0 end, cut=function() end }
