-- Owners of advertisements and reservations, by which they are counted.

-- Digest of the account that published it, and of its client. Null: not counted, as in rows of version 0.2.0 and in
-- tombstones.
alter table advertisement add column owner uuid;

-- For the advertisements of an account.
create index advertisement_by_owner on advertisement (owner) where owner is not null;

-- Digest of the account that made it, and of its client. Null: not counted.
alter table reservation add column owner uuid;
-- Digest of the users of its party. Null: not counted.
alter table reservation add column party uuid;

-- For the live reservations of an account, and of a party.
create index reservation_by_owner on reservation (owner) where owner is not null and state <> 2;
create index reservation_by_party on reservation (party) where party is not null and state <> 2;
