-- Returns values of a group in the order of their names, false for an expired value: up to a number of bytes, but at least
-- one value.
--
-- KEYS: the group's index. ARGV: the prefix of the keys of its values, the number of bytes, then the names.
local out, bytes = {}, tonumber(ARGV[2])
for i = 3, #ARGV do
  local value = redis.call('GET', ARGV[1] .. ARGV[i])
  bytes = bytes - #(value or '')
  if bytes < 0 and #out > 0 then break end
  table.insert(out, value)
end
return out
