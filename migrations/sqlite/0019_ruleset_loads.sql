-- When and by whom a version of a set's ruleset was loaded. Null for copies of servers that do not record it; they leave both as
-- they are. `ruleset_copy.source_xml` has the file with its comments from now on.

-- Milliseconds since the Unix epoch.
alter table ruleset_copy add column loaded_at_ms integer;
-- `start`, `folder` for a changed file, or the operator of a call; at most 512 bytes.
alter table ruleset_copy add column loaded_by text;
