-- Returns the accounts of a group as account.lua writes them, name and account by turns, or false if they are more than one
-- answer may hold; then the holds that have expired and still count as held, and the time in microseconds.
--
-- KEYS: the group's accounts, holds and ends. ARGV: the number of accounts, and of holds, and the names of the accounts; none means all.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local expired = {}
for _, member in ipairs(redis.call('ZRANGE', KEYS[3], '-inf', now, 'BYSCORE', 'LIMIT', 0, ARGV[2])) do
  local hold = string.sub(member, 1, 1) == 'h' and redis.call('HGET', KEYS[2], string.sub(member, 2))
  if hold then table.insert(expired, hold) end
end
if #ARGV > 2 then
  local named = {}
  for i = 3, #ARGV do
    local account = redis.call('HGET', KEYS[1], ARGV[i])
    if account then
      table.insert(named, ARGV[i])
      table.insert(named, account)
    end
  end
  return {named, expired, now}
end
if redis.call('HLEN', KEYS[1]) > tonumber(ARGV[1]) then return {false, expired, now} end
return {redis.call('HGETALL', KEYS[1]), expired, now}
