-- Gives values of a group in the order of their names, false for what has expired: as
-- many as their bytes allow, but one at least.
--
-- KEYS: the group's index. ARGV: what the keys of its values begin with, how many
-- bytes, then the names.
local out, bytes = {}, tonumber(ARGV[2])
for i = 3, #ARGV do
  local value = redis.call('GET', ARGV[1] .. ARGV[i])
  bytes = bytes - #(value or '')
  if bytes < 0 and #out > 0 then break end
  table.insert(out, value)
end
return out
