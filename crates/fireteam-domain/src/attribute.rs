//! Session attributes: declared types, value sources, party aggregation and trust.

/// Name or text of an attribute. Up to 15 bytes need no allocation, and clones share a longer text.
pub type ShortString = ecow::EcoString;

/// The value of one attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// Finite, of magnitude at most `limit::NUMBER_MAGNITUDE_MAX`.
    Number(f64),
    /// At most `limit::STRING_BYTES_MAX` bytes.
    String(ShortString),
    /// True or false.
    Bool(bool),
    /// At most `limit::STRING_LIST_ENTRIES_MAX` strings; sorted, without duplicates.
    StringList(Box<[Box<str>]>),
}

impl AttributeValue {
    /// Type of this value.
    pub fn value_type(&self) -> ValueType {
        match self {
            AttributeValue::Number(_) => ValueType::Number,
            AttributeValue::String(_) => ValueType::String,
            AttributeValue::Bool(_) => ValueType::Bool,
            AttributeValue::StringList(_) => ValueType::StringList,
        }
    }

    /// Builds a string list: sorts it and removes duplicates.
    pub fn from_string_list(mut strings: Vec<Box<str>>) -> AttributeValue {
        strings.sort();
        strings.dedup();
        AttributeValue::StringList(strings.into())
    }
}

/// Attribute types, as named by the ruleset attribute `Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// `Type="number"`.
    Number,
    /// `Type="string"`.
    String,
    /// `Type="bool"`.
    Bool,
    /// `Type="string_list"`.
    StringList,
}

impl ValueType {
    /// Name in ruleset XML.
    pub fn as_str(self) -> &'static str {
        match self {
            ValueType::Number => "number",
            ValueType::String => "string",
            ValueType::Bool => "bool",
            ValueType::StringList => "string_list",
        }
    }
}

/// Session field that holds an attribute's value. A name with its own request field is read only from that field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceField {
    /// The session's attribute map, under the attribute's name.
    AttributeMap,
    /// `skill`: the players' skills, aggregated to one number.
    Skill,
    /// `nat_type`.
    NatType,
    /// `game_in_progress`.
    GameInProgress,
    /// `big_party_count`.
    BigPartyCount,
    /// `player_count`: number of players in the session, counted by the server.
    PlayerCount,
    /// `disputed_percent`: share of the matches of the party's players that were disputed, counted by the server. The
    /// highest of the players.
    DisputedPercent,
    /// `rating_deviation`: standard deviation of the players' ratings, aggregated to one number. High for players who have
    /// played few matches, or none for long.
    RatingDeviation,
    /// `matches_played`: number of rated matches of the players, counted by the server and aggregated to one number.
    MatchesPlayed,
    /// The players' own attribute maps, under the attribute's name, aggregated to one value.
    Players(PlayerAggregation),
}

impl SourceField {
    /// Source of the attribute with this name.
    pub fn of_attribute_name(name: &str) -> SourceField {
        match name {
            "skill" => SourceField::Skill,
            "nat_type" => SourceField::NatType,
            "game_in_progress" => SourceField::GameInProgress,
            "big_party_count" => SourceField::BigPartyCount,
            "player_count" => SourceField::PlayerCount,
            "disputed_percent" => SourceField::DisputedPercent,
            "rating_deviation" => SourceField::RatingDeviation,
            "matches_played" => SourceField::MatchesPlayed,
            _ => SourceField::AttributeMap,
        }
    }

    /// Type that a built-in attribute must be declared with; `None` if any type is allowed.
    pub fn required_type(self) -> Option<ValueType> {
        match self {
            SourceField::AttributeMap | SourceField::Players(_) => None,
            SourceField::GameInProgress => Some(ValueType::Bool),
            SourceField::Skill
            | SourceField::NatType
            | SourceField::BigPartyCount
            | SourceField::PlayerCount
            | SourceField::DisputedPercent
            | SourceField::RatingDeviation
            | SourceField::MatchesPlayed => Some(ValueType::Number),
        }
    }

    /// Whether the server counts the value from matches. A ticket is stored with it.
    pub fn is_counted_from_matches(self) -> bool {
        matches!(self, SourceField::DisputedPercent | SourceField::MatchesPlayed)
    }

    /// Whether only the server knows the value: requests may not state it.
    pub fn is_kept_by_server(self) -> bool {
        self.is_counted_from_matches() || self == SourceField::RatingDeviation
    }

    /// Whether the value may come from the standing of the players.
    pub fn depends_on_standings(self) -> bool {
        self == SourceField::Skill || self.is_kept_by_server()
    }

    /// Whether the value is an aggregate of one number per player that has a field of its own or is kept by the server.
    pub fn uses_party_aggregation(self) -> bool {
        matches!(self, SourceField::Skill | SourceField::RatingDeviation | SourceField::MatchesPlayed)
    }
}

/// Aggregation of the players' numbers into one number for the party.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NumberAggregation {
    /// Arithmetic mean. For a single player it is that player's value.
    #[default]
    Mean,
    /// Median: the middle value, or the mean of the two middle values for an even count.
    Median,
    /// Minimum.
    Min,
    /// Maximum, so that one strong player is not hidden by weaker party members.
    Max,
    /// Sum.
    Sum,
}

impl NumberAggregation {
    /// Aggregates `values`; `None` if there are none.
    pub fn aggregate(self, values: &[f64]) -> Option<f64> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        Some(match self {
            NumberAggregation::Mean => values.iter().sum::<f64>() / count,
            NumberAggregation::Sum => values.iter().sum(),
            NumberAggregation::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            NumberAggregation::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            NumberAggregation::Median => {
                let mut sorted = values.to_vec();
                sorted.sort_by(f64::total_cmp);
                let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
                (low + high) / 2.0
            }
        })
    }
}

/// Aggregation of the values that the players of a party have of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayerAggregation {
    /// Function of the players' values.
    pub function: AggregateFunction,
    /// Party's value if a player has none.
    pub missing_member: MissingMemberPolicy,
}

/// Function of the values of all players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AggregateFunction {
    /// Of numbers.
    Number(NumberAggregation),
    /// Of bools: true if one player's value is.
    Any,
    /// Of bools: true if every player's value is.
    All,
    /// Of string lists: the strings of any player. No value if there are more than `limit::STRING_LIST_ENTRIES_MAX`.
    Union,
    /// Of string lists: the strings that every player has.
    Intersection,
}

/// Party's value if a player has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingMemberPolicy {
    /// The party has none either.
    #[default]
    Missing,
    /// The player does not count. The party has no value if no player has one.
    Skip,
}

/// Origins whose values the ruleset accepts for an attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Any caller, including game clients.
    Client,
    /// Game servers and the matchmaker only. The default, because a player can modify the client.
    #[default]
    GameServer,
    /// Only a claim in the caller's signed token.
    TokenClaim,
}

/// Kind of caller that sent a session's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueOrigin {
    /// A game client; its player controls the machine.
    #[default]
    Client,
    /// A game server.
    GameServer,
}

impl Trust {
    /// Whether a value from `origin` is accepted.
    pub fn accepts(self, origin: ValueOrigin) -> bool {
        match (self, origin) {
            (Trust::Client, _) | (Trust::GameServer, ValueOrigin::GameServer) => true,
            (Trust::GameServer, ValueOrigin::Client) | (Trust::TokenClaim, _) => false,
        }
    }
}

/// Declaration of one attribute in a ruleset.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Name used by clients and rules.
    pub name: Box<str>,
    /// Type of its values.
    pub value_type: ValueType,
    /// Session field that holds its value.
    pub source: SourceField,
    /// For numbers: the range over which soft filters normalize. Soft filters clamp values to it; the value itself is
    /// not changed.
    pub normalization_range: Option<(f64, f64)>,
    /// Unit of the number, for display only.
    pub unit: Box<str>,
    /// Aggregation of the players' values.
    pub number_aggregation: NumberAggregation,
    /// Origins whose values are accepted.
    pub trust: Trust,
    /// Parties may state which values they accept on the other side.
    pub allows_wishes: bool,
}
