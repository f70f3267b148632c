//! Advertisements, reservations and attributes of a user, as an export has them.

use crate::api::convert::wishes::wishes_to_proto;
use crate::api::pb;
use crate::domain::advertisement::AdvertisementKind;
use crate::domain::attribute::{AttributeValue, ShortString};
use crate::domain::id::UserKey;
use crate::domain::locality::Locality;
use crate::domain::session::{Player, Session};
use crate::engine::{ExportedAdvert, Reservation, ReservationState};

/// Converts an advertisement; `None` if it does not name the user, and only has reservations of the user.
pub(super) fn exported_advertisement(advert: &ExportedAdvert, user: UserKey) -> Option<pb::ExportedAdvertisement> {
    let (advertisement, session) = (&advert.advertisement, &advert.advertisement.session);
    if session.players.iter().all(|player| player.user != user) {
        return None;
    }
    let kind = match advertisement.kind {
        AdvertisementKind::Session => pb::AdvertisementKind::Session,
        AdvertisementKind::GameServer => pb::AdvertisementKind::GameServer,
    };
    let is_alone = session.players.iter().all(|player| player.user == user);
    let position = session.locality.map(Locality::to_degrees);
    Some(pb::ExportedAdvertisement {
        advertisement_id: advertisement.id.to_string(),
        matchmaking_set_id: advertisement.set_id.0,
        silo_id: session.silo.0,
        kind: kind.into(),
        advertised_since_unix_ms: advertisement.advertised_since.0,
        expires_at_unix_ms: advert.expires_at.0,
        player_count: session.player_count().into(),
        latitude: position.map(|(latitude, _)| latitude as f32),
        longitude: position.map(|(_, longitude)| longitude as f32),
        attributes: exported_session_attributes(session),
        player_attributes: exported_player_attributes(session, user),
        wanted_roles: exported_wanted_roles_of_user(session, user),
        wishes: wishes_to_proto(session.wishes()),
        connect_data: if is_alone { advertisement.connect_data.to_vec() } else { Vec::new() },
    })
}

/// Converts the reservations of the user in an advertisement.
pub(super) fn exported_reservations_of_user(
    advert: &ExportedAdvert,
    user: UserKey,
) -> impl Iterator<Item = pb::ExportedReservation> {
    let (advertisement_id, set_id) = (advert.advertisement.id, advert.advertisement.set_id);
    let exported = move |held: &Reservation| {
        let (state, expires_at) = match held.state {
            ReservationState::Held => (pb::ReservationState::Held, Some(held.expires_or_purge_at)),
            ReservationState::Confirmed => (pb::ReservationState::Confirmed, None),
            ReservationState::Ended => (pb::ReservationState::Released, None),
        };
        pb::ExportedReservation {
            reservation_id: held.id.to_string(),
            advertisement_id: advertisement_id.to_string(),
            matchmaking_set_id: set_id.0,
            seats: held.seats.into(),
            state: state.into(),
            expires_at_unix_ms: expires_at.map(|at| at.0),
            has_seat: held.users.binary_search(&user).is_ok(),
            made_by_user: held.is_made_by(user),
        }
    };
    advert.user_reservations.iter().map(exported)
}

/// Attributes of a session, each as `name=value`.
pub(super) fn exported_session_attributes(session: &Session) -> Vec<String> {
    session.attributes.iter().map(exported_attribute).collect()
}

/// Attributes of the user as a player of a session.
pub(super) fn exported_player_attributes(session: &Session, user: UserKey) -> Vec<String> {
    let details = session.players.iter().filter(|player| player.user == user).filter_map(|it| it.details.as_ref());
    details.flat_map(|details| &details.attributes).map(exported_attribute).collect()
}

/// Roles that the user wants as a player of a session.
pub(super) fn exported_wanted_roles_of_user(session: &Session, user: UserKey) -> Vec<String> {
    let players = session.players.iter().filter(|player| player.user == user);
    players.flat_map(Player::wanted_roles).map(ToString::to_string).collect()
}

fn exported_attribute((name, value): &(ShortString, AttributeValue)) -> String {
    let text = match value {
        AttributeValue::Number(number) => number.to_string(),
        AttributeValue::Bool(flag) => flag.to_string(),
        AttributeValue::String(text) => text.to_string(),
        AttributeValue::StringList(texts) => texts.join(","),
    };
    format!("{name}={text}")
}
