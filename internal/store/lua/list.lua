-- Returns the values of a group, name and value by turns; false if they are more, or have more bytes, than one answer may
-- hold.
--
-- KEYS: the group's index. ARGV: the prefix of the keys of its values, the number of values and of bytes.
if redis.call('ZCARD', KEYS[1]) > tonumber(ARGV[2]) then return false end
local out, bytes = {}, tonumber(ARGV[3])
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local value = redis.call('GET', ARGV[1] .. name)
  if value then -- otherwise it has expired
    bytes = bytes - #name - #value
    if bytes < 0 then return false end
    table.insert(out, name)
    table.insert(out, value)
  end
end
return out
