-- Gives the values of a group, as name and value by turns; or nothing where they are
-- more, or of more bytes, than one answer holds.
--
-- KEYS: the group's index. ARGV: what the keys of its values begin with, how many, how
-- many bytes.
if redis.call('ZCARD', KEYS[1]) > tonumber(ARGV[2]) then return false end
local out, bytes = {}, tonumber(ARGV[3])
for _, name in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local value = redis.call('GET', ARGV[1] .. name)
  if value then -- else it has expired
    bytes = bytes - #name - #value
    if bytes < 0 then return false end
    table.insert(out, name)
    table.insert(out, value)
  end
end
return out
