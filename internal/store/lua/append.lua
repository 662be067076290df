-- Appends entries to a log, and returns ''. If the log has another last entry than expected, returns the number of
-- its last entry instead.
--
-- KEYS: the log. ARGV: the number of the expected last entry, the id of this call (the name of the only field of each
-- entry), and the entries.
local log, after = KEYS[1], ARGV[1]
local last = '0'
if redis.call('EXISTS', log) == 1 then
  local info = redis.call('XINFO', 'STREAM', log)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = string.match(info[i + 1], '^%d+') end
  end
end
if last ~= after then return last end
for i = 3, #ARGV do
  redis.call('XADD', log, string.format('%.0f-0', after + i - 2), ARGV[2], ARGV[i])
end
return ''
