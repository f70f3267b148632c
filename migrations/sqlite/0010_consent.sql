-- Consents that were taken or revoked, and the players who had the chance to answer a ready check.

-- Consent of a player to be in another player's party, once a ticket, a search or an advertisement has taken it, or the
-- player has revoked it. The token of a consent that has no row is unused. Rows are deleted some time after the token has
-- expired.
create table consent
(
    consent_id blob    primary key check (length(consent_id) = 16),
    -- Id of the ticket, search or advertisement that has taken it; null if it was revoked before.
    taken_by   blob    check (length(taken_by) = 16),
    is_revoked integer not null check (is_revoked in (0, 1)),
    -- Expiry of the token.
    expires_ms integer not null,
    -- First 8 bytes of a SHA-256 over the columns above.
    checksum   integer not null
) strict, without rowid;

-- For purging.
create index consent_by_expiry on consent (expires_ms);

-- Players of the ticket who had the chance to answer the ready check of its match: bit n is player n of the ticket. No
-- checksum covers it: version 0.2.0 writes the rest of the state with its own checksum.
alter table ticket add column acknowledged integer not null default 0;
