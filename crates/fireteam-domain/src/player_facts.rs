//! Player facts: what the server keeps about the players of a party, and the ratings that rules use.

use crate::attribute::{AttributeSource, ValueOrigin};
use crate::queue::ticket::PlayerRating;
use crate::ruleset::Ruleset;
use crate::session::{Player, Session};

/// Facts that the server keeps about one player, by the ratings of one ruleset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlayerFacts {
    /// Rating now; that of a newcomer if the server keeps none.
    pub rating: PlayerRating,
    /// Number of rated matches.
    pub match_count: u32,
    /// Share of the player's matches whose sides reported different results, percent.
    pub disputed_percent: f64,
}

/// Rating of a player as filters, scores, windows and team splits use it, the same for searches and queues.
///
/// The skill that the request states, if the ruleset trusts its origin; otherwise the rating that the server keeps, or that
/// of a newcomer. `facts` is `None` for a ruleset without a rating system. `None` if there is neither.
pub fn player_rating(
    ruleset: &Ruleset,
    facts: Option<&PlayerFacts>,
    player: &Player,
    origin: ValueOrigin,
) -> Option<PlayerRating> {
    let stated = player.stated_skill.filter(|_| trusts_stated_skill(ruleset, origin));
    let deviation = facts.map_or(0.0, |kept| kept.rating.deviation);
    stated.map(|rating| PlayerRating { rating, deviation }).or_else(|| facts.map(|kept| kept.rating))
}

/// Ratings of the players of a session, in their order; as in [`player_rating`]. `facts` has one entry per player.
pub fn session_ratings<'a>(
    ruleset: &'a Ruleset,
    session: &'a Session,
    facts: Option<&'a [PlayerFacts]>,
) -> impl Iterator<Item = Option<PlayerRating>> + 'a {
    let facts_of = move |index: usize| facts.and_then(|facts| facts.get(index));
    let players = session.players.iter().enumerate();
    players.map(move |(index, player)| player_rating(ruleset, facts_of(index), player, session.origin))
}

/// Whether a ruleset's attributes need the facts of players.
pub fn are_used_by(ruleset: &Ruleset) -> bool {
    ruleset.rating.is_some() && ruleset.attributes.iter().any(|attribute| attribute.source.depends_on_player_facts())
}

fn trusts_stated_skill(ruleset: &Ruleset, origin: ValueOrigin) -> bool {
    let skill = ruleset.attributes.iter().find(|attribute| attribute.source == AttributeSource::Skill);
    skill.is_some_and(|attribute| attribute.trust.accepts(origin))
}
