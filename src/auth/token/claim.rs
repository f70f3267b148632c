//! Claims of the signed tokens, and their binary encodings.

use crate::auth::token::probe_record::ProbeRecord;
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::{
    AdvertisementId, ConsentId, MatchId, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey,
};
use crate::domain::probe_result::PROBE_RESULTS_MAX;
use crate::domain::time::UnixMs;

/// Claim of an advertisement token: its owner may update and delete the advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisementClaim {
    /// Advertisement id.
    pub advertisement_id: AdvertisementId,
    /// Matchmaking set of the advertisement.
    pub set_id: SetId,
    /// Kind of host: a player's session or a game server.
    pub kind: AdvertisementKind,
    /// Owner; `None` for an anonymous caller.
    pub subject: Option<UserKey>,
    /// Time of the first publication.
    pub advertised_since: UnixMs,
}

/// Claim of a search token: the search's start, its party and its ruleset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchClaim {
    /// Matchmaking set that is searched.
    pub set_id: SetId,
    /// Ruleset of the last search. Reservations and latency reports with this token use it too.
    pub ruleset_hash: RulesetHash,
    /// Silo that is searched.
    pub silo: SiloId,
    /// Digest of caller and party; the token is valid for them only.
    pub party_digest: [u8; 16],
    /// Start of the search.
    pub started_at: UnixMs,
    /// Time at which the token was last issued.
    pub last_issued_at: UnixMs,
}

/// Claim of a reservation token: its owner may release the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationClaim {
    /// Reservation id.
    pub reservation_id: ReservationId,
    /// Advertisement with the reserved seats.
    pub advertisement_id: AdvertisementId,
    /// Matchmaking set of the advertisement.
    pub set_id: SetId,
    /// Owner; `None` for an anonymous caller.
    pub subject: Option<UserKey>,
}

/// Claim of a consent token: a player agrees to be in another player's party, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsentClaim {
    /// Consent id: the store records by it what has taken the consent.
    pub id: ConsentId,
    /// The player that agrees.
    pub member: UserKey,
    /// The leader of the party.
    pub leader: UserKey,
    /// Matchmaking set that the consent is for.
    pub set_id: SetId,
    /// Use that the consent is for.
    pub purpose: ConsentPurpose,
    /// Whether the leader may answer ready checks for the member.
    pub may_answer: bool,
    /// Expiry; the token is invalid from this time on.
    pub expires_at: UnixMs,
}

/// Use that a consent is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsentPurpose {
    /// To enter a queue.
    Queue,
    /// To search and to reserve, or to advertise a session.
    Search,
}

/// Claim of the token of a player's own seat in a ticket that another caller entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketSeatClaim {
    /// Ticket id.
    pub ticket_id: TicketId,
    /// Matchmaking set of the queue.
    pub set_id: SetId,
    /// Player of the seat; the token is valid for this player's client only.
    pub user: UserKey,
}

/// Claim of a ticket token: its owner may act for the ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketClaim {
    /// Ticket id.
    pub ticket_id: TicketId,
    /// Matchmaking set of the queue.
    pub set_id: SetId,
    /// Owner; `None` for an anonymous caller.
    pub subject: Option<UserKey>,
}

/// Claim of a resume token: the last status that a client received, so that a watch does not repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchResumeClaim {
    /// Ticket id.
    pub ticket_id: TicketId,
    /// Version of the ticket.
    pub ticket_version: u64,
    /// Version of the ticket's match; 0 without a match.
    pub match_version: u64,
}

/// Claim of an offer token: its owner may answer the offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationOfferClaim {
    /// Match on offer.
    pub match_id: MatchId,
    /// Number of the offer.
    pub number: u32,
    /// Advertisement id for the game server that the offer asks for.
    pub advertisement_id: AdvertisementId,
    /// Allocator; `None` for an anonymous caller.
    pub subject: Option<UserKey>,
}

/// Claim of a search token after a latency report: the search, and what was measured in it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredSearchClaim {
    /// The search.
    pub search: SearchClaim,
    /// Its measurements.
    pub measured: SearchMeasurements,
}

/// Measurements of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchMeasurements {
    /// Enough candidates have answered the quick probe for the involved one.
    pub involved_phase_may_start: bool,
    /// Results of probes, each advertisement once; at most [`PROBE_RESULTS_MAX`].
    pub probes: Vec<ProbeRecord>,
}

/// Claim of one kind of token. Most kinds have a fixed length, so a truncated or padded token never verifies.
pub trait Claim: Sized {
    /// Identifies the kind; part of the signed bytes.
    const KIND_BYTE: u8;
    /// Length of the encoded claim, bytes; the largest one, if it varies.
    const ENCODED_BYTES_MAX: usize;
    /// Smallest length of the encoded claim, bytes. If it is less than `ENCODED_BYTES`, `decode` checks the length.
    const ENCODED_BYTES_MIN: usize = Self::ENCODED_BYTES_MAX;

    /// Appends `ENCODED_BYTES_MIN` to `ENCODED_BYTES` bytes.
    fn encode(&self, bytes: &mut Vec<u8>);

    /// Decodes the output of `encode`; `None` for invalid bytes.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Encodes an optional caller in 17 bytes; no caller and a key of zeros differ in the first byte.
pub(super) fn encode_optional_caller(subject: Option<UserKey>) -> [u8; 17] {
    let mut bytes = [0; 17];
    if let Some(subject) = subject {
        bytes[0] = 1;
        bytes[1..].copy_from_slice(subject.as_bytes());
    }
    bytes
}

/// Reads the fields of an encoded claim, front to back.
pub(super) struct ClaimReader<'a>(pub(super) &'a [u8]);

impl ClaimReader<'_> {
    pub(super) fn read_array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn read_time(&mut self) -> Option<UnixMs> {
        self.read_array().map(|bytes| UnixMs(u64::from_be_bytes(bytes)))
    }

    fn read_matchmaking_set_id(&mut self) -> Option<SetId> {
        self.read_array().map(|bytes| SetId(u32::from_be_bytes(bytes)))
    }

    /// Reads a caller in the form of `encode_optional_caller`; outer `None` for invalid bytes.
    pub(super) fn read_optional_caller(&mut self) -> Option<Option<UserKey>> {
        match (self.read_array()?, self.read_array()?) {
            ([0], _) => Some(None),
            ([1], subject) => Some(Some(UserKey::from_bytes(subject))),
            _ => None,
        }
    }
}

impl Claim for AdvertisementClaim {
    const KIND_BYTE: u8 = 1;
    const ENCODED_BYTES_MAX: usize = 16 + 4 + 1 + 17 + 8;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.advertisement_id.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.push(match self.kind {
            AdvertisementKind::Session => 0,
            AdvertisementKind::GameServer => 1,
        });
        bytes.extend(encode_optional_caller(self.subject));
        bytes.extend(self.advertised_since.0.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            advertisement_id: AdvertisementId::from_bytes(fields.read_array()?),
            set_id: fields.read_matchmaking_set_id()?,
            kind: match fields.read_array()? {
                [0] => AdvertisementKind::Session,
                [1] => AdvertisementKind::GameServer,
                _ => return None,
            },
            subject: fields.read_optional_caller()?,
            advertised_since: fields.read_time()?,
        })
    }
}

impl Claim for SearchClaim {
    const KIND_BYTE: u8 = 2;
    const ENCODED_BYTES_MAX: usize = 4 + 4 + 8 + 16 + 8 + 8;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.extend(self.ruleset_hash.0.to_be_bytes());
        bytes.extend(self.silo.0.to_be_bytes());
        bytes.extend(self.party_digest);
        bytes.extend(self.started_at.0.to_be_bytes());
        bytes.extend(self.last_issued_at.0.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            set_id: fields.read_matchmaking_set_id()?,
            ruleset_hash: RulesetHash(u32::from_be_bytes(fields.read_array()?)),
            silo: SiloId(u64::from_be_bytes(fields.read_array()?)),
            party_digest: fields.read_array()?,
            started_at: fields.read_time()?,
            last_issued_at: fields.read_time()?,
        })
    }
}

impl Claim for MeasuredSearchClaim {
    const KIND_BYTE: u8 = 11;
    const ENCODED_BYTES_MAX: usize = Self::ENCODED_BYTES_MIN + PROBE_RESULTS_MAX * ProbeRecord::ENCODED_BYTES;
    const ENCODED_BYTES_MIN: usize = SearchClaim::ENCODED_BYTES_MAX + 1 + 1;

    fn encode(&self, bytes: &mut Vec<u8>) {
        let SearchMeasurements { involved_phase_may_start, probes } = &self.measured;
        let probes = &probes[..probes.len().min(PROBE_RESULTS_MAX)];
        self.search.encode(bytes);
        bytes.push(u8::from(*involved_phase_may_start));
        bytes.push(probes.len() as u8);
        probes.iter().for_each(|probe| probe.encode(bytes));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (search, rest) = bytes.split_at_checked(SearchClaim::ENCODED_BYTES_MAX)?;
        let ([may_start @ 0..=1, count], records) = rest.split_first_chunk()? else { return None };
        let (records, []) = records.as_chunks() else { return None };
        if records.len() != usize::from(*count) || PROBE_RESULTS_MAX < records.len() {
            return None;
        }
        let probes = records.iter().map(ProbeRecord::decode).collect::<Option<_>>()?;
        let measured = SearchMeasurements { involved_phase_may_start: *may_start == 1, probes };
        Some(Self { search: SearchClaim::decode(search)?, measured })
    }
}

/// Kind 3 was an earlier reservation token without an owner; it is no longer accepted.
impl Claim for ReservationClaim {
    const KIND_BYTE: u8 = 4;
    const ENCODED_BYTES_MAX: usize = 16 + 16 + 4 + 17;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.reservation_id.as_bytes());
        bytes.extend(self.advertisement_id.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.extend(encode_optional_caller(self.subject));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            reservation_id: ReservationId::from_bytes(fields.read_array()?),
            advertisement_id: AdvertisementId::from_bytes(fields.read_array()?),
            set_id: fields.read_matchmaking_set_id()?,
            subject: fields.read_optional_caller()?,
        })
    }
}

/// Kind 5 was an earlier consent token for any set and use; it is no longer accepted.
impl Claim for ConsentClaim {
    const KIND_BYTE: u8 = 9;
    const ENCODED_BYTES_MAX: usize = 16 + 16 + 16 + 4 + 1 + 1 + 8;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.id.as_bytes());
        bytes.extend(self.member.as_bytes());
        bytes.extend(self.leader.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.push(match self.purpose {
            ConsentPurpose::Queue => 0,
            ConsentPurpose::Search => 1,
        });
        bytes.push(self.may_answer.into());
        bytes.extend(self.expires_at.0.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            id: ConsentId::from_bytes(fields.read_array()?),
            member: UserKey::from_bytes(fields.read_array()?),
            leader: UserKey::from_bytes(fields.read_array()?),
            set_id: fields.read_matchmaking_set_id()?,
            purpose: match fields.read_array()? {
                [0] => ConsentPurpose::Queue,
                [1] => ConsentPurpose::Search,
                _ => return None,
            },
            may_answer: match fields.read_array()? {
                [0] => false,
                [1] => true,
                _ => return None,
            },
            expires_at: fields.read_time()?,
        })
    }
}

impl Claim for TicketSeatClaim {
    const KIND_BYTE: u8 = 10;
    const ENCODED_BYTES_MAX: usize = 16 + 4 + 16;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.ticket_id.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.extend(self.user.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            ticket_id: TicketId::from_bytes(fields.read_array()?),
            set_id: fields.read_matchmaking_set_id()?,
            user: UserKey::from_bytes(fields.read_array()?),
        })
    }
}

impl Claim for TicketClaim {
    const KIND_BYTE: u8 = 6;
    const ENCODED_BYTES_MAX: usize = 16 + 4 + 17;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.ticket_id.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.extend(encode_optional_caller(self.subject));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            ticket_id: TicketId::from_bytes(fields.read_array()?),
            set_id: fields.read_matchmaking_set_id()?,
            subject: fields.read_optional_caller()?,
        })
    }
}

impl Claim for WatchResumeClaim {
    const KIND_BYTE: u8 = 7;
    const ENCODED_BYTES_MAX: usize = 16 + 8 + 8;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.ticket_id.as_bytes());
        bytes.extend(self.ticket_version.to_be_bytes());
        bytes.extend(self.match_version.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            ticket_id: TicketId::from_bytes(fields.read_array()?),
            ticket_version: u64::from_be_bytes(fields.read_array()?),
            match_version: u64::from_be_bytes(fields.read_array()?),
        })
    }
}

impl Claim for AllocationOfferClaim {
    const KIND_BYTE: u8 = 8;
    const ENCODED_BYTES_MAX: usize = 16 + 4 + 16 + 17;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.match_id.as_bytes());
        bytes.extend(self.number.to_be_bytes());
        bytes.extend(self.advertisement_id.as_bytes());
        bytes.extend(encode_optional_caller(self.subject));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            match_id: MatchId::from_bytes(fields.read_array()?),
            number: u32::from_be_bytes(fields.read_array()?),
            advertisement_id: AdvertisementId::from_bytes(fields.read_array()?),
            subject: fields.read_optional_caller()?,
        })
    }
}
