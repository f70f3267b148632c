//! What each kind of token says, and its bytes.

use crate::auth::token::subject_bytes;
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::{AdvertisementId, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::domain::time::UnixMs;

/// Says who may update or delete an advertisement and since when it has been advertised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisementClaim {
    /// Which advertisement.
    pub id: AdvertisementId,
    /// Its set.
    pub set_id: SetId,
    /// Who waits behind it.
    pub kind: AdvertisementKind,
    /// The caller it was given to; none for anonymous.
    pub subject: Option<UserKey>,
    /// Since when it has been advertised.
    pub since: UnixMs,
}

/// Says since when a search has been running, for whom, and by which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchClaim {
    /// The set searched.
    pub set_id: SetId,
    /// The ruleset that the last search went by: seats are judged by it too, and so are round trips.
    pub hash: RulesetHash,
    /// The population searched.
    pub silo: SiloId,
    /// A digest of caller and party: the token is good for them alone.
    pub party: [u8; 16],
    /// When the search began.
    pub since: UnixMs,
    /// When the token was last given out.
    pub used: UnixMs,
}

/// Says who may release a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationClaim {
    /// Which reservation.
    pub id: ReservationId,
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
    pub until: UnixMs,
}

/// Says whose a ticket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketClaim {
    /// Which ticket.
    pub id: TicketId,
    /// The set whose queue it is in.
    pub set_id: SetId,
    /// The caller it was given to; none for anonymous.
    pub subject: Option<UserKey>,
}

/// Says how a ticket stood when a client last heard of it, so that nothing is said twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardClaim {
    /// Which ticket.
    pub id: TicketId,
    /// The ticket's edition.
    pub ticket: u64,
    /// Its match's; 0 without one.
    pub play: u64,
}

/// One kind of token: its kind byte and its bytes. Every claim has one length, so a cut or padded one never opens.
pub trait Claim: Sized {
    /// Tells this kind from every other; signed with the rest.
    const KIND: u8;
    /// Bytes of the claim.
    const LENGTH: usize;

    /// Appends exactly `LENGTH` bytes.
    fn write(&self, bytes: &mut Vec<u8>);

    /// Reads what `write` wrote; `None` for bytes that no claim has.
    fn read(bytes: &[u8]) -> Option<Self>;
}

/// Fields of a claim, taken off the front one by one.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn moment(&mut self) -> Option<UnixMs> {
        self.take().map(|bytes| UnixMs(u64::from_be_bytes(bytes)))
    }

    fn set_id(&mut self) -> Option<SetId> {
        self.take().map(|bytes| SetId(u32::from_be_bytes(bytes)))
    }

    /// A caller, as `subject_bytes` wrote it; `None` for bytes that it does not write.
    fn subject(&mut self) -> Option<Option<UserKey>> {
        match (self.take()?, self.take()?) {
            ([0], _) => Some(None),
            ([1], subject) => Some(Some(UserKey::from_bytes(subject))),
            _ => None,
        }
    }
}

impl Claim for AdvertisementClaim {
    const KIND: u8 = 1;
    const LENGTH: usize = 16 + 4 + 1 + 17 + 8;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.id.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.push(match self.kind {
            AdvertisementKind::Session => 0,
            AdvertisementKind::GameServer => 1,
        });
        bytes.extend(subject_bytes(self.subject));
        bytes.extend(self.since.0.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            id: AdvertisementId::from_bytes(fields.take()?),
            set_id: fields.set_id()?,
            kind: match fields.take()? {
                [0] => AdvertisementKind::Session,
                [1] => AdvertisementKind::GameServer,
                _ => return None,
            },
            subject: fields.subject()?,
            since: fields.moment()?,
        })
    }
}

impl Claim for SearchClaim {
    const KIND: u8 = 2;
    const LENGTH: usize = 4 + 4 + 8 + 16 + 8 + 8;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.extend(self.hash.0.to_be_bytes());
        bytes.extend(self.silo.0.to_be_bytes());
        bytes.extend(self.party);
        bytes.extend(self.since.0.to_be_bytes());
        bytes.extend(self.used.0.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            set_id: fields.set_id()?,
            hash: RulesetHash(u32::from_be_bytes(fields.take()?)),
            silo: SiloId(u64::from_be_bytes(fields.take()?)),
            party: fields.take()?,
            since: fields.moment()?,
            used: fields.moment()?,
        })
    }
}

/// Kind 3 was a reservation's before it said whose it was; it opens no more.
impl Claim for ReservationClaim {
    const KIND: u8 = 4;
    const LENGTH: usize = 16 + 16 + 4 + 17;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.id.as_bytes());
        bytes.extend(self.advertisement_id.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.extend(subject_bytes(self.subject));
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            id: ReservationId::from_bytes(fields.take()?),
            advertisement_id: AdvertisementId::from_bytes(fields.take()?),
            set_id: fields.set_id()?,
            subject: fields.subject()?,
        })
    }
}

impl Claim for ConsentClaim {
    const KIND: u8 = 5;
    const LENGTH: usize = 16 + 16 + 8;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.member.as_bytes());
        bytes.extend(self.leader.as_bytes());
        bytes.extend(self.until.0.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            member: UserKey::from_bytes(fields.take()?),
            leader: UserKey::from_bytes(fields.take()?),
            until: fields.moment()?,
        })
    }
}

impl Claim for TicketClaim {
    const KIND: u8 = 6;
    const LENGTH: usize = 16 + 4 + 17;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.id.as_bytes());
        bytes.extend(self.set_id.0.to_be_bytes());
        bytes.extend(subject_bytes(self.subject));
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self { id: TicketId::from_bytes(fields.take()?), set_id: fields.set_id()?, subject: fields.subject()? })
    }
}

impl Claim for HeardClaim {
    const KIND: u8 = 7;
    const LENGTH: usize = 16 + 8 + 8;

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.id.as_bytes());
        bytes.extend(self.ticket.to_be_bytes());
        bytes.extend(self.play.to_be_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            id: TicketId::from_bytes(fields.take()?),
            ticket: u64::from_be_bytes(fields.take()?),
            play: u64::from_be_bytes(fields.take()?),
        })
    }
}
