//! What a game may say about a session: a declared schema of numbers, texts, flags and lists of texts.

/// The value of one attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum AttributeValue {
    /// Finite, of magnitude at most `limit::NUMBER_MAGNITUDE_MAX`.
    Number(f64),
    /// At most `limit::TEXT_BYTES_MAX` bytes.
    String(Box<str>),
    /// True or false.
    Bool(bool),
    /// At most `limit::TEXTS_MAX` texts; sorted, without repetitions.
    StringList(Box<[Box<str>]>),
}

impl AttributeValue {
    /// Which kind of value this is.
    pub fn value_type(&self) -> ValueType {
        match self {
            AttributeValue::Number(_) => ValueType::Number,
            AttributeValue::String(_) => ValueType::String,
            AttributeValue::Bool(_) => ValueType::Bool,
            AttributeValue::StringList(_) => ValueType::StringList,
        }
    }

    /// A list of texts, sorted and without repetitions.
    pub fn string_list(mut texts: Vec<Box<str>>) -> AttributeValue {
        texts.sort();
        texts.dedup();
        AttributeValue::StringList(texts.into())
    }
}

/// The kinds of value, as a ruleset's `Type` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// `Type="number"`.
    Number,
    /// `Type="text"`.
    String,
    /// `Type="flag"`.
    Bool,
    /// `Type="texts"`.
    StringList,
}

impl ValueType {
    /// The word in XML.
    pub fn as_str(self) -> &'static str {
        match self {
            ValueType::Number => "number",
            ValueType::String => "text",
            ValueType::Bool => "flag",
            ValueType::StringList => "texts",
        }
    }
}

/// Where an attribute's value is found. Names that the wire gives a field of its own are read there and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeSource {
    /// The session's map of attributes, under the attribute's name.
    AttributeMap,
    /// `skill`: the players' skills, reduced to one number.
    Skill,
    /// `nat_type`.
    NatType,
    /// `game_in_progress`.
    GameInProgress,
    /// `big_party_count`.
    BigPartyCount,
    /// `player_count`: how many players the session has; counted by the server.
    PlayerCount,
}

impl AttributeSource {
    /// Where an attribute of this name is read from.
    pub fn of_name(name: &str) -> AttributeSource {
        match name {
            "skill" => AttributeSource::Skill,
            "nat_type" => AttributeSource::NatType,
            "game_in_progress" => AttributeSource::GameInProgress,
            "big_party_count" => AttributeSource::BigPartyCount,
            "player_count" => AttributeSource::PlayerCount,
            _ => AttributeSource::AttributeMap,
        }
    }

    /// The kind that a built-in attribute must be declared with; `None` where any kind will do.
    pub fn required_type(self) -> Option<ValueType> {
        match self {
            AttributeSource::AttributeMap => None,
            AttributeSource::GameInProgress => Some(ValueType::Bool),
            AttributeSource::Skill
            | AttributeSource::NatType
            | AttributeSource::BigPartyCount
            | AttributeSource::PlayerCount => Some(ValueType::Number),
        }
    }
}

/// How the players' values of an attribute become the party's one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartyAggregation {
    /// The arithmetic mean, which is what a lone player has anyway.
    #[default]
    Mean,
    /// The middle value; the mean of the two middle ones for an even count.
    Median,
    /// The least.
    Min,
    /// The greatest, so that a strong friend is not hidden among weak ones.
    Max,
    /// All added up.
    Sum,
}

impl PartyAggregation {
    /// One number out of several; `None` out of none.
    pub fn aggregate(self, values: &[f64]) -> Option<f64> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        Some(match self {
            PartyAggregation::Mean => values.iter().sum::<f64>() / count,
            PartyAggregation::Sum => values.iter().sum(),
            PartyAggregation::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            PartyAggregation::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            PartyAggregation::Median => {
                let mut sorted = values.to_vec();
                sorted.sort_by(f64::total_cmp);
                let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
                (low + high) / 2.0
            }
        })
    }
}

/// Who is believed about an attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Anyone, game clients included.
    Client,
    /// Game servers and the matchmaker itself. The default: clients run code that they may have changed.
    #[default]
    GameServer,
    /// A claim in the caller's signed token.
    TokenClaim,
}

/// Who said what a session says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueOrigin {
    /// A game client, on a machine that its player controls.
    #[default]
    Client,
    /// A game server.
    GameServer,
}

impl Trust {
    /// Whether a value that `origin` stated is believed.
    pub fn accepts(self, origin: ValueOrigin) -> bool {
        match (self, origin) {
            (Trust::Client, _) | (Trust::GameServer, ValueOrigin::GameServer) => true,
            (Trust::GameServer, ValueOrigin::Client) | (Trust::TokenClaim, _) => false,
        }
    }
}

/// One declared attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// What clients and rules call it.
    pub name: Box<str>,
    /// What values it takes.
    pub value_type: ValueType,
    /// Where its value is read.
    pub source: AttributeSource,
    /// For numbers, the range that soft filters normalise over (S1-19); values outside are clamped there, never here.
    pub normalization_range: Option<(f64, f64)>,
    /// What the numbers count, for people.
    pub unit: Box<str>,
    /// How players' values become the party's.
    pub party_aggregation: PartyAggregation,
    /// Who is believed about it.
    pub trust: Trust,
}
