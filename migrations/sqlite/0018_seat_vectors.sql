-- Round trips of the ticket's players to beacons, by which others are matched with it: for each player its number in the ticket
-- (1 byte), the length of the rest (1 byte), and a published vector: the center of the grid cell, in steps of 25 ms. Null without any,
-- and once the ticket has ended. Each counts for ten minutes. Ends with a checksum of its own: earlier servers neither see nor change it.
alter table ticket add column seat_vectors blob;
