-- Counts against all limits as often as each of them allows. Returns that number, and the microseconds to wait if it is less
-- than the number wanted now. It is takeFromLimits in store.go.
--
-- KEYS: the limits. ARGV: the number wanted now, the number wanted ahead, and for how many microseconds; then for each limit
-- the microseconds until one more is free, and until all are.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local want, ahead, later = tonumber(ARGV[1]), tonumber(ARGV[2]), now + ARGV[3]

local got, wait, limits = want, 0, {}
for i = 1, #KEYS do
  local l = {every = tonumber(ARGV[2 * i + 2]), all = tonumber(ARGV[2 * i + 3])}
  l.had = tonumber(redis.call('GET', KEYS[i]) or 0)
  l.whole = math.min(l.had, now + l.all)
  got = math.min(got, math.floor((now + l.all - math.max(l.whole, now)) / l.every))
  limits[i] = l
end
for _, l in ipairs(limits) do
  local whole = math.max(l.whole, now) + got * l.every
  if got < want then wait = math.max(wait, whole + l.every - l.all - now) end
  ahead = math.max(0, math.min(ahead, math.floor((now + math.floor(l.all / 2) - math.max(whole, later)) / l.every)))
end
for i, l in ipairs(limits) do
  if got > 0 then l.whole = math.max(l.whole, now) + got * l.every end
  if ahead > 0 then l.whole = math.max(l.whole, later) + ahead * l.every end
  if l.whole ~= l.had then
    redis.call('SET', KEYS[i], string.format('%.0f', l.whole), 'PXAT', string.format('%.0f', math.ceil(l.whole / 1000)))
  end
end
return {got + ahead, wait}
