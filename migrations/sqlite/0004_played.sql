-- Decay that stands still while nobody plays.
--
-- Conventions are those of 0002. The new column of `rating` counts in its checksum where it says anything, so that the rows that are
-- there keep theirs.

-- Periods in which the set had been played, up to and with that of the user's last match, where the ruleset counts them; else 0.
alter table rating add column played integer not null default 0;

-- For asking how far a set has been played. Empty where no ruleset counts it.
create index rating_by_played on rating (set_id, played, last_ms) where 0 < played;
