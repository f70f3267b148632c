-- Decay that stands still while nobody plays.
--
-- Conventions are those of 0002. Code before this one names the columns that it reads and writes, and never misses the new one.

-- Periods in which the set had been played, up to and with that of the user's last match, where the ruleset counts them; else 0.
alter table rating add column played bigint not null default 0 check (0 <= played);

-- For asking how far a set has been played. Empty where no ruleset counts it.
create index rating_by_played on rating (set_id, played, last_ms) where 0 < played;
