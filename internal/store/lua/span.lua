-- Returns the number of a log's first entry ('' if it has none) and of its last entry.
--
-- KEYS: the log.
if redis.call('EXISTS', KEYS[1]) == 0 then return { '', '0' } end
local first, last = '', '0'
local info = redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then last = string.match(info[i + 1], '^%d+') end
  if info[i] == 'first-entry' and info[i + 1] then first = string.match(info[i + 1][1], '^%d+') end
end
return { first, last }
