-- Puts a mark in the place of another, or where none is, and gives the one that stands there then.
--
-- KEYS: where it stands. ARGV: the one that it replaces (nothing: none), and the new one.
local is = redis.call('GET', KEYS[1]) or ''
if is ~= ARGV[1] then return is end
redis.call('SET', KEYS[1], ARGV[2])
return ARGV[2]
