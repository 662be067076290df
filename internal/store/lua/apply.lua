-- Makes a change of values of one group, and returns 0. If a value does not have the version that its write replaces,
-- changes nothing and returns the number of that write.
--
-- KEYS: the group's index, then each value.
-- ARGV: the new version; then for each write its name, the version that it replaces ('': any), its TTL in milliseconds
-- (0: none; -: delete the value), and its data.
--
-- A value is its version, the millisecond when it expires (0: never), and its data. The index holds the names, sorted by
-- that millisecond. Names of expired values are removed some at a time, and the index expires with its last value.
local index, version = KEYS[1], ARGV[1]
local none = string.rep('\0', 8)

for i = 2, #KEYS do
  local was = ARGV[4 * i - 5]
  if was ~= '' then
    local is = redis.call('GETRANGE', KEYS[i], 0, 7)
    if is == '' then is = none end
    if is ~= was then return i - 1 end
  end
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #KEYS do
  local name, keep, data = ARGV[4 * i - 6], ARGV[4 * i - 4], ARGV[4 * i - 3]
  if keep == '-' then
    redis.call('DEL', KEYS[i])
    redis.call('ZREM', index, name)
  elseif keep == '0' then
    redis.call('SET', KEYS[i], version .. none .. data)
    redis.call('ZADD', index, '+inf', name)
  else
    local expires = string.format('%.0f', now + keep)
    redis.call('SET', KEYS[i], version .. struct.pack('>I8', now + keep) .. data, 'PXAT', expires)
    redis.call('ZADD', index, expires, name)
  end
end

local over = redis.call('ZRANGE', index, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, 100)
if #over > 0 then redis.call('ZREM', index, unpack(over)) end
local last = redis.call('ZRANGE', index, 0, 0, 'REV', 'WITHSCORES')[2]
if last == 'inf' then
  redis.call('PERSIST', index)
elseif last and redis.call('PEXPIRETIME', index) ~= tonumber(last) then
  redis.call('PEXPIREAT', index, last)
end
return 0
