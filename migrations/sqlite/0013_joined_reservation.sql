-- Reservations whose party has joined the session: its users may play the matches that the session's host begins.

-- Whether the reservation ended because its party joined. No checksum covers it: version 0.2.0 writes the rest of the row with
-- its own checksum.
alter table reservation add column joined integer not null default 0;
