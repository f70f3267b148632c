//! Owners of new advertisements and reservations, and the limits that apply to them.
//!
//! A client's newer advertisement or reservation takes the place of its older one, so that no player waits for what a crash
//! left behind. Game servers reserve for others, and callers without an identity cannot be told apart: neither is limited.

use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::attribute::ValueOrigin;
use crate::domain::id::UserKey;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::command::Caller;
use crate::engine::common::Common;
use crate::engine::settings::EngineSettings;
use crate::store::{
    AdvertLimitPolicy, AdvertOwner, LimitPerClientAndAccount, OwnerKey, ReservationOwner, ReservedPartyKey,
};

/// Advertisement to publish, as far as its owner depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdvertOwnerInput<'a> {
    pub(crate) kind: AdvertisementKind,
    pub(crate) session: &'a Session,
    /// The call creates an advertisement; otherwise it updates one by its token.
    pub(crate) is_create: bool,
}

/// Owner of an advertisement that `caller` publishes; `None` if it has no identity.
pub(crate) fn advert_owner(
    settings: &EngineSettings,
    caller: &Caller,
    ruleset: &Ruleset,
    advert: AdvertOwnerInput<'_>,
    now: UnixMs,
) -> Option<AdvertOwner> {
    let AdvertOwnerInput { kind, session, is_create } = advert;
    let account = caller.subject?;
    let (key, limit) = match caller.user {
        Some(user) => {
            let limit =
                limit_per_client_and_account(settings.max_advertisements_per_client, ruleset.clients_per_account);
            let tombstone_until = settings.tombstone_until(now);
            let key = OwnerKey::of_advertiser(account, kind, client_of(user, ruleset, session));
            (key, AdvertLimitPolicy::Replace { limit, tombstone_until, is_create })
        }
        None => {
            let max = settings.max_advertisements_per_server;
            (OwnerKey::of_advertiser(account, kind, None), AdvertLimitPolicy::Refuse { max })
        }
    };
    Some(AdvertOwner { key, limit, is_new_advert: is_create })
}

/// Owner of an advertisement that memory has and that the store may have lost. It replaces no other.
pub(crate) fn advert_owner_from_memory(
    common: &Common,
    advertisement: &Advertisement,
    now: UnixMs,
) -> Option<AdvertOwner> {
    let settings = &common.settings;
    let clients =
        common.current_or_cached_ruleset(advertisement.set_id, None).map_or(1, |ruleset| ruleset.clients_per_account);
    let limit = match advertisement.session.value_origin {
        ValueOrigin::Client => AdvertLimitPolicy::Replace {
            limit: limit_per_client_and_account(settings.max_advertisements_per_client, clients),
            tombstone_until: settings.tombstone_until(now),
            is_create: false,
        },
        ValueOrigin::GameServer => AdvertLimitPolicy::Refuse { max: settings.max_advertisements_per_server },
    };
    let key = OwnerKey::of_advertiser(advertisement.publisher?, advertisement.kind, None);
    Some(AdvertOwner { key, limit, is_new_advert: false })
}

/// Owner of a reservation that `caller` makes for `users`, and its limit; `None` if none applies.
pub(crate) fn reservation_owner(
    settings: &EngineSettings,
    caller: &Caller,
    ruleset: &Ruleset,
    session: &Session,
    users: &[UserKey],
) -> Option<(ReservationOwner, LimitPerClientAndAccount)> {
    let user = caller.user?;
    // The key comes from the user, so that an erasure and an export of the user find it.
    let client = OwnerKey::of_reserver(user, client_of(user, ruleset, session));
    let owner = ReservationOwner { client, party: ReservedPartyKey::from_party_users(users) };
    Some((owner, limit_per_client_and_account(settings.max_reservations_per_client, ruleset.clients_per_account)))
}

/// Client of `user`, where the ruleset allows an account several: the one that the session names.
fn client_of(user: UserKey, ruleset: &Ruleset, session: &Session) -> Option<UserKey> {
    if ruleset.clients_per_account <= 1 {
        return None;
    }
    session.players.iter().find(|player| player.user == user).map(|player| player.client_key)
}

fn limit_per_client_and_account(per_client: u32, clients_per_account: u32) -> LimitPerClientAndAccount {
    LimitPerClientAndAccount { per_client, per_account: per_client.saturating_mul(clients_per_account) }
}
