-- Rating decay that pauses while a set is not played.
--
-- Conventions as in 0002. The new column of `rating` counts in its checksum only if it is not zero, so that existing
-- rows keep their checksums.

-- Decay periods in which the set had been played, up to and including that of the user's last match. 0 if the ruleset
-- does not count them.
alter table rating add column played integer not null default 0;

-- For the highest count of played periods of a set. Empty if no ruleset counts them.
create index rating_by_played on rating (set_id, played, last_ms) where 0 < played;
