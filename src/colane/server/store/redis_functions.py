"""What runs within Redis, so that a commit is one round trip that is made as a whole or not at all.

All keys of a cluster have one hash tag, so that they lie in one slot. For each collection, a hash has the documents by
their keys, and a sorted set has the keys, all of score 0, which it keeps in the order of their bytes. The audit log is
a stream, the number of a line the first half of its id. `head` holds the store's own id and its counters: among them
how many records each collection has (`n:` and its number), and at which event and version that was counted. A
scheduler of before counts none: what it has left is counted anew by the next commit.

The library's name has the number of its form: schedulers of two versions may use one server, and each calls its own.
"""

from __future__ import annotations

from typing import Final

LIBRARY: Final = "colane_2"

OPEN: Final = f"{LIBRARY}_open"
"""KEYS: head, audit. ARGV: schema, id for a new store ("" where none is to be made), audit lines to keep.

Returns the schema and the id; nothing where there is no store.
"""

COMMIT: Final = f"{LIBRARY}_commit"
"""KEYS: head, audit, then for each collection the hash and the set, `epochs` last.

ARGV: id, epoch, events, version (each of the three "" where it does not matter), how many clears, deletes, puts and
lines; then these: number of a collection; number and key; number, key and document; text. Numbers are from 0.

Returns "made" and the newest line's number, or what is otherwise and what it is.
"""

PAGE: Final = f"{LIBRARY}_page"
"""KEYS: hash, set. ARGV: "up" or "down", where to begin ("" for an end), how many, at most how many to look at, texts
that a document has to hold.

Returns the key looked at last ("" where that was the end), then keys and documents.
"""

LUA: Final = f"""#!lua name={LIBRARY}
local function open(keys, argv)
  local known = redis.call('HMGET', keys[1], 'schema', 'id')
  if not known[1] then
    if argv[2] == '' then return {{}} end
    redis.call('HSET', keys[1], 'schema', argv[1], 'id', argv[2], 'events', 0, 'version', 0)
    return {{argv[1], argv[2]}}
  end
  if known[1] == argv[1] then redis.call('XTRIM', keys[2], 'MAXLEN', argv[3]) end
  return {{known[1], known[2] or ''}}
end

local function commit(keys, argv)
  local head = redis.call('HMGET', keys[1], 'id', 'events', 'version', 'counted')
  if head[1] ~= argv[1] then return {{'gone', ''}} end
  local events, version = tonumber(head[2]), tonumber(head[3])
  if not events or not version then return {{'gone', ''}} end
  if argv[2] ~= '' then
    local newest = redis.call('ZREVRANGE', keys[#keys], 0, 0)[1] or '0'
    if tonumber(newest) ~= tonumber(argv[2]) then return {{'epoch', newest}} end
  end
  if argv[3] ~= '' and tonumber(argv[3]) ~= events then return {{'events', head[2]}} end
  if argv[4] ~= '' and tonumber(argv[4]) ~= version then return {{'version', head[3]}} end
  if head[4] ~= head[2] .. ':' .. head[3] then
    for place = 3, #keys, 2 do redis.call('HSET', keys[1], 'n:' .. (place - 3) / 2, redis.call('HLEN', keys[place])) end
  end
  local gained = {{}}
  local function gain(collection, by) gained[collection] = (gained[collection] or 0) + by end
  local at = 9
  for _ = 1, tonumber(argv[5]) do
    local place = 3 + 2 * tonumber(argv[at])
    redis.call('DEL', keys[place], keys[place + 1])
    redis.call('HSET', keys[1], 'n:' .. argv[at], 0)
    at = at + 1
  end
  for _ = 1, tonumber(argv[6]) do
    local place = 3 + 2 * tonumber(argv[at])
    gain(argv[at], -redis.call('HDEL', keys[place], argv[at + 1]))
    redis.call('ZREM', keys[place + 1], argv[at + 1])
    at = at + 2
  end
  for _ = 1, tonumber(argv[7]) do
    local place = 3 + 2 * tonumber(argv[at])
    gain(argv[at], redis.call('HSET', keys[place], argv[at + 1], argv[at + 2]))
    redis.call('ZADD', keys[place + 1], 0, argv[at + 1])
    at = at + 3
  end
  for _ = 1, tonumber(argv[8]) do
    events = events + 1
    redis.call('XADD', keys[2], string.format('%d-0', events), 'line', argv[at])
    at = at + 1
  end
  if argv[4] ~= '' then version = version + 1 end
  for collection, by in pairs(gained) do
    if by ~= 0 then redis.call('HINCRBY', keys[1], 'n:' .. collection, by) end
  end
  local now, later = string.format('%d', events), string.format('%d', version)
  redis.call('HSET', keys[1], 'events', now, 'version', later, 'counted', now .. ':' .. later)
  return {{'made', now}}
end

local function page(keys, argv)
  local found, looked, left, begin, last = {{''}}, 0, tonumber(argv[3]), argv[2], ''
  while left > 0 do
    local names
    if argv[1] == 'up' then
      names = redis.call('ZRANGEBYLEX', keys[2], begin == '' and '-' or '(' .. begin, '+', 'LIMIT', 0, left)
    else
      names = redis.call('ZREVRANGEBYLEX', keys[2], begin == '' and '+' or '(' .. begin, '-', 'LIMIT', 0, left)
    end
    if #names == 0 then return found end
    for _, name in ipairs(names) do
      local body = redis.call('HGET', keys[1], name)
      local fits = body ~= false
      for at = 5, #argv do
        fits = fits and string.find(body, argv[at], 1, true) ~= nil
      end
      if fits then
        found[#found + 1], found[#found + 2] = name, body
        left = left - 1
      end
      begin = name
    end
    looked = looked + #names
    found[1] = begin
    if looked >= tonumber(argv[4]) then return found end
  end
  return found
end

redis.register_function('{OPEN}', open)
redis.register_function('{COMMIT}', commit)
redis.register_function{{function_name='{PAGE}', callback=page, flags={{'no-writes'}}}}
"""
