//! Conversion of allocators' messages, and of offers.

use crate::api::convert::{FieldErrors, RequestReader, field_checks};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::auth::identity::{Identity, Role};
use crate::domain::attribute::AttributeValue;
use crate::domain::id::{SetId, UserKey};
use crate::domain::limit;
use crate::engine::command::Caller;
use crate::engine::queues::command::{AllocatorRegistration, MatchOffer, OfferAnswer};

/// Maximum sets of a registration.
const SETS_MAX: usize = 64;

/// Maximum offers that an allocator answers at the same time.
const OPEN_OFFERS_MAX: u32 = 64;

/// Maximum length of the names in a host identity, bytes.
const IDENTITY_BYTES_MAX: usize = 256;

impl RequestReader {
    /// Reads the registration of an allocator.
    pub fn allocator_registration(
        &self,
        caller: &Caller,
        wire: pb::AllocatorRegistration,
    ) -> Result<AllocatorRegistration, Rejection> {
        let mut problems = self.new_field_errors();
        let sets = wire.matchmaking_set_ids;
        field_checks::check_list_len(sets.len(), SETS_MAX, "register.matchmaking_set_ids", &mut problems);
        let regions = wire.regions;
        field_checks::check_list_len(regions.len(), limit::REGIONS_PER_SESSION_MAX, "register.regions", &mut problems);
        for (index, region) in regions.iter().enumerate().take(limit::REGIONS_PER_SESSION_MAX) {
            field_checks::check_required_text(region, format_args!("register.regions[{index}]"), &mut problems);
        }
        let max_open_offers = wire.max_open_offers.unwrap_or(1);
        if !(1..=OPEN_OFFERS_MAX).contains(&max_open_offers) {
            let fix = format!("is {max_open_offers}; give 1 to {OPEN_OFFERS_MAX}");
            problems.add("register.max_open_offers", fix);
        }
        let host_subject = match wire.host_identity {
            None => caller.subject,
            Some(identity) => host_subject(caller, &identity, &mut problems),
        };
        let registration = AllocatorRegistration {
            subject: caller.subject,
            host_subject,
            sets: sets.into_iter().take(SETS_MAX).map(SetId).collect(),
            regions: regions.into_iter().map(String::into_boxed_str).collect(),
            max_open_offers: usize::try_from(max_open_offers).unwrap_or(1),
        };
        problems.into_result(registration)
    }

    /// Reads the answer to an offer.
    pub fn place_answer(&self, wire: pb::PlaceAnswer) -> Result<OfferAnswer, Rejection> {
        let mut problems = self.new_field_errors();
        let offer_token = required_offer_token(wire.offer_token, "place.offer_token", &mut problems);
        let (length, path) = (wire.connect_data.len(), "place.connect_data");
        if length == 0 {
            problems.add(path, "is missing; send the data with which players connect");
        }
        field_checks::check_byte_len(length, limit::CONNECT_DATA_BYTES_MAX, path, &mut problems);
        let connect_data = Some(wire.connect_data);
        problems.into_result(OfferAnswer { offer_token, connect_data, refusal_reason: String::new() })
    }

    /// Reads the refusal of an offer.
    pub fn refuse_answer(&self, wire: pb::RefuseAnswer) -> Result<OfferAnswer, Rejection> {
        let mut problems = self.new_field_errors();
        let offer_token = required_offer_token(wire.offer_token, "refuse.offer_token", &mut problems);
        field_checks::check_text_len(&wire.reason, "refuse.reason", &mut problems);
        problems.into_result(OfferAnswer { offer_token, connect_data: None, refusal_reason: wire.reason })
    }
}

/// Key of the game servers with this identity; `None` without authentication.
fn host_subject(caller: &Caller, identity: &pb::HostIdentity, problems: &mut FieldErrors) -> Option<UserKey> {
    for (name, path) in
        [(&identity.issuer, "register.host_identity.issuer"), (&identity.subject, "register.host_identity.subject")]
    {
        if name.is_empty() {
            problems.add(path, "is missing; send the name as in the game servers' tokens");
        }
        field_checks::check_byte_len(name.len(), IDENTITY_BYTES_MAX, path, problems);
    }
    caller.subject?;
    Some(Identity::new(&identity.issuer, &identity.subject, Role::GameServer, &[], None).caller_key)
}

fn required_offer_token(token: Vec<u8>, path: &str, problems: &mut FieldErrors) -> Vec<u8> {
    if token.is_empty() {
        problems.add(path, "is missing; send the token of the offer");
    }
    field_checks::size_checked_token(token, path, problems)
}

/// Converts an offer.
pub fn allocation_offer(offer: MatchOffer) -> pb::AllocationOffer {
    let attributes = offer.attributes.into_iter().map(|(name, value)| (name.into(), attribute_value(value)));
    pb::AllocationOffer {
        offer_token: offer.offer_token,
        match_id: offer.match_id.to_string(),
        matchmaking_set_id: offer.set_id.0,
        service_configuration_hash: offer.ruleset_hash.0,
        silo_id: offer.silo.0,
        region: offer.region.map_or_else(String::new, Into::into),
        seats: offer.seats.into(),
        attributes: attributes.collect(),
        answer_within_ms: offer.answer_within_ms,
        advertisement_id: offer.advertisement_id.to_string(),
        host_token: offer.host_token,
    }
}

fn attribute_value(value: AttributeValue) -> pb::AttributeValue {
    use pb::attribute_value::Value as Wire;
    let value = match value {
        AttributeValue::Number(number) => Wire::NumberValue(number),
        AttributeValue::String(text) => Wire::StringValue(text.into()),
        AttributeValue::Bool(flag) => Wire::BoolValue(flag),
        AttributeValue::StringList(list) => {
            Wire::StringList(pb::StringList { values: list.iter().map(|text| text.to_string()).collect() })
        }
    };
    pb::AttributeValue { value: Some(value) }
}
