-- Round trips of an advertisement's party to beacons, by which others are matched with it: moved to the center of its grid cell,
-- in steps of 25 ms. Not a place that is finer than the cell.

-- Null without a latency token. Absent for servers ten minutes after its oldest measurement, which it contains. Ends with a checksum of
-- its own: an older server writes the rest of the row with the checksum of the row, and leaves this until it expires.
alter table advertisement add column beacon_vector blob;
