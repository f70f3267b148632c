//! Entry of a party into a queue: the ratings and counted values that its ticket is stored with.

use crate::attribute::AttributeValue;
use crate::attribute_values::number_counted_from_matches;
use crate::player_standing::{self, PlayerStanding};
use crate::queue::ticket::PlayerRating;
use crate::ruleset::Ruleset;
use crate::session::Session;

/// Session as a ticket has it.
#[derive(Clone, Debug, PartialEq)]
pub struct EnteredSession {
    /// Session, with the values that the server counts among its attributes.
    pub session: Session,
    /// Ratings of its players, in their order. 0 for a player of whom none is known.
    pub player_ratings: Vec<PlayerRating>,
}

/// Session of a party that enters a queue. `standings` are those of its players, in their order; `None` without a rating
/// system.
pub fn build_entered_session(
    ruleset: &Ruleset,
    mut session: Session,
    standings: Option<&[PlayerStanding]>,
) -> EnteredSession {
    let ratings = player_standing::session_ratings(ruleset, &session, standings);
    let player_ratings = ratings.map(Option::unwrap_or_default).collect();
    for attribute in ruleset.attributes.iter().filter(|attribute| attribute.source.is_counted_from_matches()) {
        let Some(counted) = standings.and_then(|standings| number_counted_from_matches(attribute, standings)) else {
            continue;
        };
        let value = AttributeValue::Number(counted);
        match session.attributes.binary_search_by(|(name, _)| (**name).cmp(&attribute.name)) {
            Ok(position) => session.attributes[position].1 = value,
            Err(position) => session.attributes.insert(position, (attribute.name.as_ref().into(), value)),
        }
    }
    EnteredSession { session, player_ratings }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::attribute::{Attribute, NumberAggregation, SourceField, Trust, ValueOrigin, ValueType};
    use crate::attribute_values::AttributeValues;
    use crate::queue::tests::fixture::{QueueFixture, new_ticket};
    use crate::ruleset::rating::{RatingSpec, RatingSystem};
    use crate::time::UnixMs;

    fn attribute(name: &str, trust: Trust, party_aggregation: NumberAggregation) -> Attribute {
        Attribute {
            name: name.into(),
            value_type: ValueType::Number,
            source: SourceField::of_attribute_name(name),
            normalization_range: None,
            unit: "".into(),
            number_aggregation: party_aggregation,
            trust,
            allows_wishes: false,
        }
    }

    proptest! {
        /// A party has the same values in a queue as in a search.
        #[test]
        fn ticket_has_the_values_of_a_search(
            players in prop::collection::vec((prop::option::of(-9.0..9.0), -9.0..9.0, 0.0..9.0, 0u32..99, 0.0..100.0), 1..5),
            trust in prop::sample::select(vec![Trust::Client, Trust::GameServer, Trust::TokenClaim]),
            origin in prop::sample::select(vec![ValueOrigin::Client, ValueOrigin::GameServer]),
            aggregation in prop::sample::select(vec![NumberAggregation::Mean, NumberAggregation::Min, NumberAggregation::Sum]),
        ) {
            let mut ruleset = QueueFixture::one_vs_one().ruleset;
            let elo = RatingSystem::Elo { initial: 0.0, k: 32.0, scale: 400.0 };
            ruleset.rating = Some(RatingSpec::with_defaults(elo));
            let names = ["skill", "rating_deviation", "matches_played", "disputed_percent", "nat_type"];
            ruleset.attributes = names.map(|name| attribute(name, trust, aggregation)).into();
            let mut ticket = new_ticket(1, &vec![0.0; players.len()], UnixMs(0));
            (ticket.session.value_origin, ticket.session.nat_type) = (origin, Some(2));
            for (player, (stated, ..)) in ticket.session.players.iter_mut().zip(&players) {
                player.stated_skill = *stated;
            }
            let standing = |&(_, rating, deviation, match_count, disputed_percent): &(_, f64, f64, u32, f64)| {
                PlayerStanding {
                    rating: PlayerRating { rating, deviation },
                    rated_match_count: match_count,
                    disputed_percent,
                    is_frustrated: false,
                }
            };
            let standings: Vec<PlayerStanding> = players.iter().map(standing).collect();
            let searched = AttributeValues::from_session_and_standings(&ruleset, &ticket.session, Some(&standings));
            let entered = build_entered_session(&ruleset, ticket.session.clone(), Some(&standings));
            (ticket.session, ticket.player_ratings) = (entered.session, entered.player_ratings);
            prop_assert_eq!(AttributeValues::from_ticket(&ruleset, &Arc::new(ticket)), searched.clone());
            prop_assert_eq!(searched.number(2).is_some(), true);
        }
    }
}
