-- Owners of advertisements and reservations, by which they are counted.

-- Digest of the account that published it, and of its client. Null: not counted, as in rows of version 0.2.0. No checksum
-- covers the new columns: after a rollback, version 0.2.0 writes the rest of the row with its own checksum.
alter table advertisement add column owner blob check (length(owner) = 16);

-- For the advertisements of an account.
create index advertisement_by_owner on advertisement (owner) where owner is not null;

-- Digest of the account that made it, and of its client. Null: not counted.
alter table reservation add column owner blob check (length(owner) = 16);
-- Digest of the users of its party. Null: not counted.
alter table reservation add column party blob check (length(party) = 16);

-- For the live reservations of an account, and of a party.
create index reservation_by_owner on reservation (owner) where owner is not null and state <> 2;
create index reservation_by_party on reservation (party) where party is not null and state <> 2;
