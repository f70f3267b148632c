-- Offers of matches to allocators, so that a match is offered to one allocator at a time.

-- Last offer of each match that was offered. Rows are deleted some time after their match has ended.
create table allocation_offer
(
    match_id         blob    primary key check (length(match_id) = 16),
    -- Number of the offer, from 1. A claim of the next offer names the number that it follows.
    number           integer not null check (number between 1 and 4294967295),
    -- Round over all allocators, from 1: each allocator gets the match at most once per round.
    round            integer not null check (round between 1 and 4294967295),
    -- Advertisement id for the game server that this offer asks for.
    advertisement_id blob    not null check (length(advertisement_id) = 16),
    -- Until when the offer may be answered. It is over then, or earlier with a refusal.
    answer_by_ms     integer not null,
    -- First 8 bytes of a SHA-256 over the columns above.
    checksum         integer not null
) strict, without rowid;
