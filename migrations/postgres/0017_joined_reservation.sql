-- Reservations whose party has joined the session: its users may play the matches that the session's host begins.

-- Whether the reservation ended because its party joined. Servers of version 0.2.0 neither see nor change it: what they end has
-- not joined.
alter table reservation add column joined boolean not null default false;
