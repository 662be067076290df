-- Appends entries to a log, and gives nothing; or gives the number of its last entry
-- where that is another than it should be.
--
-- KEYS: the log. ARGV: the number of its last entry, what this call is known by (the
-- name of the only field of each entry), and the entries.
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
