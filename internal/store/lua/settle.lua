-- Settles holds of a group. Returns for each settlement 1 if it has ended the hold, 0 if it has not; or only -i if an amount of
-- settlement i is invalid, and nothing is changed.
--
-- ARGV: the id of this call (8 bytes), then for each settlement the id of the hold, the number of amounts, and the amounts.
local call, all = ARGV[1], {}
local at = 2
while at <= #ARGV do
  local s = {id = ARGV[at], n = tonumber(ARGV[at + 1]), amounts = {}, held = {}, result = 0}
  for i = 1, s.n do s.amounts[i] = tonumber(ARGV[at + 1 + i]) end
  at = at + 2 + s.n
  table.insert(all, s)
  local hold = redis.call('HGET', holds, s.id)
  if hold and endOfHold(hold) > now then
    s.ended = string.sub(hold, 1, head - 1) .. 's' .. call
    if hold == s.ended then -- the answer to this call was lost
      s.result = 1
    else
      s.held = readAmounts(hold)
    end
  end
  if #s.held > 0 then
    if #s.held ~= s.n then return {-#all} end
    for i, h in ipairs(s.held) do
      if s.amounts[i] > h.amount or s.amounts[i] < 0 and h.amount > 0 then return {-#all} end
    end
  end
end

local out = {}
for i, s in ipairs(all) do
  if #s.held > 0 then
    redis.call('HSET', holds, s.id, s.ended) -- first: Redis refuses it where memory is full
    settle(s.held, s.amounts)
    s.result = 1
  end
  out[i] = s.result
end
expire()
return out
