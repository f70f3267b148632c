-- Rating decay that pauses while a set is not played.
--
-- Conventions as in 0002. Older servers name the columns that they read and write, so the new column does not affect
-- them.

-- Decay periods in which the set had been played, up to and including that of the user's last match. 0 if the ruleset
-- does not count them.
alter table rating add column played bigint not null default 0 check (0 <= played);

-- For the highest count of played periods of a set. Empty if no ruleset counts them.
create index rating_by_played on rating (set_id, played, last_ms) where 0 < played;
