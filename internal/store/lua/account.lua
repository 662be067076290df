-- The functions of hold.lua and settle.lua, which are sent with these lines in front.
--
-- KEYS: the accounts of a group, its holds, and the ends of both.
--
-- Accounts are a hash from the name to "settled held end"; instants are microseconds since 1970, and inf is never. Holds are
-- a hash from the id to the end (8 bytes), "h" and, for each account, the amount (8 bytes), the length of the name (4 bytes) and the
-- name. A settled hold has "s" and the id of the call that settled it. Ends are a sorted set of a and a name, or h and an id. All
-- three keys expire at the last end.
local accounts, holds, ends = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local head = 9

local function text(n) return string.format('%.0f', n) end

-- Returns an account; nil if there is none, or it is forgotten by now.
local function readAccount(name)
  local is = redis.call('HGET', accounts, name)
  if not is then return end
  local settled, held, over = string.match(is, '^(%d+) (%d+) (%w+)$')
  local a = {name = name, settled = tonumber(settled), held = tonumber(held), ends = tonumber(over)}
  if a.held > 0 or a.ends > now then return a end
end

local function writeAccount(a)
  if a.held > 0 or a.ends > now then
    redis.call('HSET', accounts, a.name, text(a.settled) .. ' ' .. text(a.held) .. ' ' .. text(a.ends))
  else
    redis.call('HDEL', accounts, a.name)
    redis.call('ZREM', ends, 'a' .. a.name)
  end
end

local function endOfHold(hold) return (struct.unpack('>I8', hold)) end

-- Returns what a hold has in its accounts; nothing if it is settled.
local function readAmounts(hold)
  local all, at = {}, head + 1
  if string.sub(hold, head, head) ~= 'h' then return all end
  while at <= #hold do
    local amount, n, next = struct.unpack('>I8I4', hold, at)
    table.insert(all, {name = string.sub(hold, next, next + n - 1), amount = amount})
    at = next + n
  end
  return all
end

-- Takes away what a hold has, and settles the amounts; all of it if there are none.
local function settle(held, amounts)
  for i, h in ipairs(held) do
    local a = readAccount(h.name)
    if a then
      a.held = math.max(0, a.held - h.amount)
      a.settled = math.max(0, a.settled + (amounts and amounts[i] or h.amount))
      writeAccount(a)
    end
  end
end

-- Forgets an expired hold. Where memory is full, Redis refuses the first line, and nothing is changed.
local function forget(id, hold)
  redis.call('HSET', holds, id, hold)
  settle(readAmounts(hold))
  redis.call('HDEL', holds, id)
  redis.call('ZREM', ends, 'h' .. id)
end

-- Forgets some of what has ended. An account in which something is held is forgotten with its last hold.
for _, member in ipairs(redis.call('ZRANGE', ends, '-inf', text(now), 'BYSCORE', 'LIMIT', 0, 100)) do
  local name = string.sub(member, 2)
  if string.sub(member, 1, 1) == 'h' then
    local hold = redis.call('HGET', holds, name)
    if hold then forget(name, hold) else redis.call('ZREM', ends, member) end
  else
    redis.call('ZREM', ends, member)
    if not readAccount(name) then redis.call('HDEL', accounts, name) end
  end
end

local function expire()
  local last = redis.call('ZRANGE', ends, 0, 0, 'REV', 'WITHSCORES')[2]
  if not last then return end
  local at = last ~= 'inf' and math.ceil(last / 1000) or -1
  for _, key in ipairs(KEYS) do
    if redis.call('PEXPIRETIME', key) ~= at then
      if at < 0 then redis.call('PERSIST', key) else redis.call('PEXPIREAT', key, text(at)) end
    end
  end
end
