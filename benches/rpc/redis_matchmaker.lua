-- Pairs the oldest tickets of a list. Redis runs a script as one step, so a ticket is popped, assigned and announced together.
-- KEYS[1]: list of waiting tickets. KEYS[2]: stream of assignments.
-- ARGV[1]: tickets at most. ARGV[2]: first 8 bytes of the ids of the matches. Returns the number of tickets with a match.
local ids = redis.call('LPOP', KEYS[1], ARGV[1])
if not ids then return 0 end

local keys = {}
for n, id in ipairs(ids) do keys[n] = 'ticket:' .. id end

-- Expired tickets are absent.
local stored, waiting = redis.call('MGET', unpack(keys)), {}
for n, ticket in ipairs(stored) do
    if ticket and string.sub(ticket, 1, 1) == 'W' then waiting[#waiting + 1] = n end
end

local assigned = {}
for first = 1, #waiting - 1, 2 do
    local match = ARGV[2] .. struct.pack('>I8', first)
    for at = first, first + 1 do
        local n = waiting[at]
        redis.call('SET', keys[n], 'M' .. string.sub(stored[n], 2, 17) .. match, 'KEEPTTL')
        assigned[#assigned + 1] = ids[n] .. match
    end
end

if #waiting % 2 == 1 then redis.call('LPUSH', KEYS[1], ids[waiting[#waiting]]) end
if #assigned > 0 then redis.call('XADD', KEYS[2], 'MAXLEN', '~', '10000', '*', 'assigned', table.concat(assigned)) end
return #assigned
