-- Holds amounts in accounts of a group if all of them have room. Returns 1 if they are held, 0 if there is no room, or -i if the account
-- i has ended; then for each account its settled and held amount and its end. It is holdInAccounts in account.go.
--
-- ARGV: the id, for how many microseconds, and the amounts as a hold has them; then for each account its name, maximum, amount and end.
local id, ttl, amounts = ARGV[1], ARGV[2], ARGV[3]
local known = redis.call('HGET', holds, id)
if known and endOfHold(known) <= now then
  forget(id, known)
  known = false
end

local result, all = 1, {}
for i = 4, #ARGV, 4 do
  local max, amount, over = tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  if not known and over <= now then return {-i / 4} end
  local a = readAccount(ARGV[i]) or {name = ARGV[i], settled = 0, held = 0, ends = 0}
  if a.settled + a.held > max - amount then result = 0 end
  table.insert(all, {account = a, amount = amount, over = over})
end
if known then
  result = 1
elseif result == 1 then
  for _, h in ipairs(all) do
    local a = h.account
    a.held = a.held + h.amount
    if h.over > a.ends then
      a.ends = h.over
      redis.call('ZADD', ends, text(a.ends), 'a' .. a.name)
    end
    writeAccount(a)
  end
  redis.call('HSET', holds, id, struct.pack('>I8', now + ttl) .. 'h' .. amounts)
  redis.call('ZADD', ends, text(now + ttl), 'h' .. id)
end
expire()

local out = {result}
for _, h in ipairs(all) do
  table.insert(out, h.account.settled)
  table.insert(out, h.account.held)
  table.insert(out, text(h.account.ends))
end
return out
