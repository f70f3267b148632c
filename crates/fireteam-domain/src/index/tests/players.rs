//! Advertisements by player, and replaced attribute values, against a scan of all entries.

use std::sync::Arc;

use crate::attribute::{Attribute, AttributeValue, SourceField, ValueType};
use crate::attribute_values::AttributeValues;
use crate::id::{AdvertisementId, UserKey};
use crate::index::tests::random_world::{self, IndexTestRng, ValueDistribution};
use crate::index::{AdvertisementIndex, IndexEntry};
use crate::player_standing::PlayerStanding;
use crate::queue::ticket::PlayerRating;
use crate::ruleset::Ruleset;
use crate::ruleset::rating::{RatingSpec, RatingSystem};
use crate::session::Player;

const USERS: usize = 12;
const FEW_VALUES: ValueDistribution = ValueDistribution { common_one_in: 4, missing_one_in: 8, user_count: 12 };

fn user(number: usize) -> UserKey {
    UserKey::from_name(&number.to_string())
}

/// Ruleset with ratings and a `skill`, which clients may not state.
fn rated_ruleset() -> Arc<Ruleset> {
    let mut ruleset = random_world::random_ruleset(&mut IndexTestRng(5));
    ruleset.rating = Some(RatingSpec::with_defaults(RatingSystem::Elo { initial: 0.0, k: 32.0, scale: 400.0 }));
    let mut attributes = ruleset.attributes.into_vec();
    attributes.push(Attribute {
        name: "skill".into(),
        value_type: ValueType::Number,
        source: SourceField::Skill,
        normalization_range: None,
        unit: "".into(),
        number_aggregation: Default::default(),
        trust: Default::default(),
        allows_wishes: false,
    });
    ruleset.attributes = attributes.into();
    Arc::new(ruleset)
}

fn standing(rating: f64) -> PlayerStanding {
    PlayerStanding {
        rating: PlayerRating { rating, deviation: 0.0 },
        rated_match_count: 1,
        disputed_percent: 0.0,
        is_frustrated: false,
    }
}

fn random_entry(rng: &mut IndexTestRng, ruleset: &Arc<Ruleset>, id: AdvertisementId) -> IndexEntry {
    let mut entry = random_world::random_entry(rng, ruleset, id, FEW_VALUES);
    let session = &mut Arc::make_mut(&mut entry.advertisement).session;
    let players = (0..rng.below(4)).map(|_| user(rng.below(USERS)));
    session.players = players.map(Player::from_user).collect();
    entry.attribute_values = AttributeValues::from_session_and_standings(
        ruleset,
        session,
        Some(&vec![standing(0.0); session.players.len()]),
    );
    entry
}

/// After random inserts, replacements and removals, the advertisements of each player are those that a scan finds, and
/// replaced values are those that the entries and their rows have.
#[test]
fn advertisements_of_a_player_equal_a_scan() {
    let ruleset = rated_ruleset();
    let rng = &mut IndexTestRng(17);
    let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
    for step in 0..2_000 {
        let id = AdvertisementId::from_bytes([rng.below(40) as u8; 16]);
        if rng.below(4) == 0 {
            index.remove(id);
        } else {
            index.upsert(random_entry(rng, &ruleset, id));
        }
        let changed = user(rng.below(USERS));
        let mut found = index.tracked_ids_of_user(changed);
        let scan = index
            .entries()
            .filter(|entry| entry.advertisement.session.players.iter().any(|player| player.user == changed));
        let mut expected: Vec<AdvertisementId> = scan.map(|entry| entry.advertisement.id).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "step {step}");
        for id in found {
            let session = index.get(id).unwrap().advertisement.session.clone();
            let rating = f64::from(step);
            let values = AttributeValues::from_session_and_standings(
                &ruleset,
                &session,
                Some(&vec![standing(rating); session.players.len()]),
            );
            index.set_attribute_values(id, values.clone());
            assert!(!index.set_attribute_values(id, values), "equal values change nothing");
            let skill = index.get(id).unwrap().attribute_values.get(ruleset.attributes.len() - 1);
            assert_eq!(skill, Some(&AttributeValue::Number(rating)));
            assert!(index.is_entry_consistent(id), "step {step}");
        }
    }
    assert_eq!(
        index.depends_on_standings(),
        index.entries().any(|entry| !entry.advertisement.session.players.is_empty())
    );
}
