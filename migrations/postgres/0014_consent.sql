-- Consents that were taken or revoked, and the players who had the chance to answer a ready check.

-- Consent of a player to be in another player's party, once a ticket, a search or an advertisement has taken it, or the
-- player has revoked it. The token of a consent that has no row is unused. Rows are deleted some time after the token has
-- expired.
create table consent
(
    consent_id uuid    primary key,
    -- Id of the ticket, search or advertisement that has taken it; null if it was revoked before.
    taken_by   uuid,
    is_revoked boolean not null,
    -- Expiry of the token.
    expires_ms bigint  not null
);

-- For purging.
create index consent_by_expiry on consent (expires_ms);

-- Players of the ticket who had the chance to answer the ready check of its match: bit n is player n of the ticket.
-- Servers of version 0.2.0 neither see nor change it.
alter table ticket add column acknowledged bigint not null default 0;
