//! Standing of players: what the server keeps about them in one pool and on one scale of ratings. And the rating of a player
//! that rules use, the same for searches and queues.

use crate::attribute::{SourceField, ValueOrigin};
use crate::queue::ticket::PlayerRating;
use crate::ruleset::Ruleset;
use crate::session::{Player, Session};

/// Standing of one player by the ratings of one ruleset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlayerStanding {
    /// Rating now; that of a newcomer if the server keeps none.
    pub rating: PlayerRating,
    /// Number of rated matches.
    pub rated_match_count: u32,
    /// Share of the player's matches whose sides reported different results, percent.
    pub disputed_percent: f64,
    /// Whether the player counts as frustrated by the ruleset's own `<Satisfaction>`.
    pub is_frustrated: bool,
}

/// Rating of a player as filters, scores, windows and team splits use it.
///
/// The skill that the request states, if the ruleset trusts its origin; otherwise the rating of the player's standing.
/// `standing` is `None` for a ruleset without a rating system. `None` if there is neither.
pub fn stated_or_standing_rating(
    ruleset: &Ruleset,
    standing: Option<&PlayerStanding>,
    player: &Player,
    origin: ValueOrigin,
) -> Option<PlayerRating> {
    let stated = player.stated_skill.filter(|_| trusts_stated_skill(ruleset, origin));
    let deviation = standing.map_or(0.0, |standing| standing.rating.deviation);
    stated.map(|rating| PlayerRating { rating, deviation }).or_else(|| standing.map(|standing| standing.rating))
}

/// Ratings of the players of a session, in their order; as in [`stated_or_standing_rating`]. `standings` has one entry per player.
pub fn session_ratings<'a>(
    ruleset: &'a Ruleset,
    session: &'a Session,
    standings: Option<&'a [PlayerStanding]>,
) -> impl Iterator<Item = Option<PlayerRating>> + 'a {
    let standing_of = move |index: usize| standings.and_then(|standings| standings.get(index));
    let players = session.players.iter().enumerate();
    players.map(move |(index, player)| {
        stated_or_standing_rating(ruleset, standing_of(index), player, session.value_origin)
    })
}

/// Whether a ruleset has attributes or limits that the standing of players may decide.
pub fn uses_standings(ruleset: &Ruleset) -> bool {
    let depends = || ruleset.attributes.iter().any(|attribute| attribute.source.depends_on_standings());
    ruleset.rating.is_some() && (ruleset.frustrated_player_limits.is_some() || depends())
}

fn trusts_stated_skill(ruleset: &Ruleset, origin: ValueOrigin) -> bool {
    let skill = ruleset.attributes.iter().find(|attribute| attribute.source == SourceField::Skill);
    skill.is_some_and(|attribute| attribute.trust.accepts(origin))
}
