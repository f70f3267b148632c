//! What each kind of token says, and its bytes.

use crate::auth::token::encode_subject;
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::{AdvertisementId, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::domain::time::UnixMs;

/// Says who may update or delete an advertisement and since when it has been advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisementClaim {
    /// Which advertisement.
    pub advertisement_id: AdvertisementId,
    /// Its set.
    pub set_id: SetId,
    /// Who waits behind it.
    pub kind: AdvertisementKind,
    /// The caller it was given to; none for anonymous.
    pub subject: Option<UserKey>,
    /// Since when it has been advertised.
    pub advertised_since: UnixMs,
}

/// Says since when a search has been running, for whom, and by which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchClaim {
    /// The set searched.
    pub set_id: SetId,
    /// The ruleset that the last search went by: seats are judged by it too, and so are round trips.
    pub ruleset_hash: RulesetHash,
    /// The population searched.
    pub silo: SiloId,
    /// A digest of caller and party: the token is good for them alone.
    pub party_digest: [u8; 16],
    /// When the search began.
    pub started_at: UnixMs,
    /// When the token was last given out.
    pub last_issued_at: UnixMs,
}

/// Says who may release a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationClaim {
    /// Which reservation.
    pub reservation_id: ReservationId,
    /// In which advertisement.
    pub advertisement_id: AdvertisementId,
    /// Its set.
    pub set_id: SetId,
    /// The caller it was given to; none for anonymous.
    pub subject: Option<UserKey>,
}

/// Says that a player is willing to be taken along by another, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsentClaim {
    /// Who is willing.
    pub member: UserKey,
    /// Who may take them along.
    pub leader: UserKey,
    /// Until when; not from that moment on.
    pub expires_at: UnixMs,
}

/// Says whose a ticket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketClaim {
    /// Which ticket.
    pub ticket_id: TicketId,
    /// The set whose queue it is in.
    pub set_id: SetId,
    /// The caller it was given to; none for anonymous.
    pub subject: Option<UserKey>,
}

/// Says how a ticket stood when a client last heard of it, so that nothing is said twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeClaim {
    /// Which ticket.
    pub ticket_id: TicketId,
    /// The ticket's edition.
    pub ticket_version: u64,
    /// Its match's; 0 without one.
    pub match_version: u64,
}

/// One kind of token: its kind byte and its bytes. Every claim has one length, so a cut or padded one never opens.
pub trait Claim: Sized {
    /// Tells this kind from every other; signed with the rest.
    const KIND_BYTE: u8;
    /// Bytes of the claim.
    const ENCODED_BYTES: usize;

    /// Appends exactly `LENGTH` bytes.
    fn encode(&self, bytes: &mut Vec<u8>);

    /// Reads what `write` wrote; `None` for bytes that no claim has.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

/// Fields of a claim, taken off the front one by one.
struct ClaimReader<'a>(&'a [u8]);

impl ClaimReader<'_> {
    fn read_bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn read_time(&mut self) -> Option<UnixMs> {
        self.read_bytes().map(|bytes| UnixMs(u64::from_be_bytes(bytes)))
    }

    fn read_set_id(&mut self) -> Option<SetId> {
        self.read_bytes().map(|bytes| SetId(u32::from_be_bytes(bytes)))
    }

    /// A caller, as `subject_bytes` wrote it; `None` for bytes that it does not write.
    fn read_subject(&mut self) -> Option<Option<UserKey>> {
        match (self.read_bytes()?, self.read_bytes()?) {
            ([0], _) => Some(None),
            ([1], subject) => Some(Some(UserKey::from_bytes(subject))),
            _ => None,
        }
    }
}

impl Claim for AdvertisementClaim {
    const KIND_BYTE: u8 = 1;
    const ENCODED_BYTES: usize = 16 + 4 + 1 + 17 + 8;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.advertisement_id.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.push(match self.kind {
            AdvertisementKind::Session => 0,
            AdvertisementKind::GameServer => 1,
        });
        bytes.extend(encode_subject(self.subject));
        bytes.extend(self.advertised_since.0.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            advertisement_id: AdvertisementId::from_bytes(fields.read_bytes()?),
            set_id: fields.read_set_id()?,
            kind: match fields.read_bytes()? {
                [0] => AdvertisementKind::Session,
                [1] => AdvertisementKind::GameServer,
                _ => return None,
            },
            subject: fields.read_subject()?,
            advertised_since: fields.read_time()?,
        })
    }
}

impl Claim for SearchClaim {
    const KIND_BYTE: u8 = 2;
    const ENCODED_BYTES: usize = 4 + 4 + 8 + 16 + 8 + 8;

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
            set_id: fields.read_set_id()?,
            ruleset_hash: RulesetHash(u32::from_be_bytes(fields.read_bytes()?)),
            silo: SiloId(u64::from_be_bytes(fields.read_bytes()?)),
            party_digest: fields.read_bytes()?,
            started_at: fields.read_time()?,
            last_issued_at: fields.read_time()?,
        })
    }
}

/// Kind 3 was a reservation's before it said whose it was; it opens no more.
impl Claim for ReservationClaim {
    const KIND_BYTE: u8 = 4;
    const ENCODED_BYTES: usize = 16 + 16 + 4 + 17;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.reservation_id.as_bytes());
        bytes.extend(self.advertisement_id.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.extend(encode_subject(self.subject));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            reservation_id: ReservationId::from_bytes(fields.read_bytes()?),
            advertisement_id: AdvertisementId::from_bytes(fields.read_bytes()?),
            set_id: fields.read_set_id()?,
            subject: fields.read_subject()?,
        })
    }
}

impl Claim for ConsentClaim {
    const KIND_BYTE: u8 = 5;
    const ENCODED_BYTES: usize = 16 + 16 + 8;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.member.as_bytes());
        bytes.extend(self.leader.as_bytes());
        bytes.extend(self.expires_at.0.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            member: UserKey::from_bytes(fields.read_bytes()?),
            leader: UserKey::from_bytes(fields.read_bytes()?),
            expires_at: fields.read_time()?,
        })
    }
}

impl Claim for TicketClaim {
    const KIND_BYTE: u8 = 6;
    const ENCODED_BYTES: usize = 16 + 4 + 17;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.ticket_id.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.extend(encode_subject(self.subject));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            ticket_id: TicketId::from_bytes(fields.read_bytes()?),
            set_id: fields.read_set_id()?,
            subject: fields.read_subject()?,
        })
    }
}

impl Claim for ResumeClaim {
    const KIND_BYTE: u8 = 7;
    const ENCODED_BYTES: usize = 16 + 8 + 8;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.ticket_id.as_bytes());
        bytes.extend(self.ticket_version.to_be_bytes());
        bytes.extend(self.match_version.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        Some(Self {
            ticket_id: TicketId::from_bytes(fields.read_bytes()?),
            ticket_version: u64::from_be_bytes(fields.read_bytes()?),
            match_version: u64::from_be_bytes(fields.read_bytes()?),
        })
    }
}
