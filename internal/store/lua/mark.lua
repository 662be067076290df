-- Replaces a mark, or writes one if there is none. Returns the mark that is there then.
--
-- KEYS: the mark. ARGV: the mark that it replaces ('': none), and the new one.
local is = redis.call('GET', KEYS[1]) or ''
if is ~= ARGV[1] then return is end
redis.call('SET', KEYS[1], ARGV[2])
return ARGV[2]
