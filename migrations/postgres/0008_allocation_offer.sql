-- Offers of matches to allocators, so that a match is offered to one allocator at a time, by one server.

-- Last offer of each match that was offered. Rows are deleted some time after their match has ended.
create table allocation_offer
(
    match_id         uuid   primary key,
    -- Number of the offer, from 1. A claim of the next offer names the number that it follows.
    number           bigint not null check (number between 1 and 4294967295),
    -- Round over all allocators, from 1: each allocator gets the match at most once per round.
    round            bigint not null check (round between 1 and 4294967295),
    -- Advertisement id for the game server that this offer asks for.
    advertisement_id uuid   not null,
    -- Until when the offer may be answered. It is over then, or earlier with a refusal.
    answer_by_ms     bigint not null
);
