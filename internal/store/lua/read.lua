-- Returns entries of a log, number and data by turns: up to a number of entries and of bytes, but at least one entry if
-- there is one.
--
-- KEYS: the log. ARGV: the entry to read after, the number of entries, the number of bytes.
local from, left, bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local out = {}
while left > 0 do
  local some = redis.call('XRANGE', KEYS[1], '(' .. from .. '-0', '+', 'COUNT', math.min(left, 16))
  if #some == 0 then break end
  for _, entry in ipairs(some) do
    local data = entry[2][2]
    bytes = bytes - #data
    if bytes < 0 and #out > 0 then return out end
    from = string.match(entry[1], '^%d+')
    table.insert(out, from)
    table.insert(out, data)
  end
  left = left - #some
end
return out
