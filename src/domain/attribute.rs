//! What a game may say about a session: a declared schema of numbers, texts, flags and lists of texts.

/// The value of one attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Finite, of magnitude at most `limit::NUMBER_MAGNITUDE_MAX`.
    Number(f64),
    /// At most `limit::TEXT_BYTES_MAX` bytes.
    Text(Box<str>),
    /// True or false.
    Flag(bool),
    /// At most `limit::TEXTS_MAX` texts; sorted, without repetitions.
    Texts(Box<[Box<str>]>),
}

impl Value {
    /// Which kind of value this is.
    pub fn kind(&self) -> ValueKind {
        match self {
            Value::Number(_) => ValueKind::Number,
            Value::Text(_) => ValueKind::Text,
            Value::Flag(_) => ValueKind::Flag,
            Value::Texts(_) => ValueKind::Texts,
        }
    }

    /// A list of texts, sorted and without repetitions.
    pub fn texts(mut texts: Vec<Box<str>>) -> Value {
        texts.sort();
        texts.dedup();
        Value::Texts(texts.into())
    }
}

/// The kinds of value, as a ruleset's `Type` names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// `Type="number"`.
    Number,
    /// `Type="text"`.
    Text,
    /// `Type="flag"`.
    Flag,
    /// `Type="texts"`.
    Texts,
}

impl ValueKind {
    /// The word in XML.
    pub fn as_str(self) -> &'static str {
        match self {
            ValueKind::Number => "number",
            ValueKind::Text => "text",
            ValueKind::Flag => "flag",
            ValueKind::Texts => "texts",
        }
    }
}

/// Where an attribute's value is found. Names that the wire gives a field of its own are read there and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The session's map of attributes, under the attribute's name.
    Map,
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

impl Source {
    /// Where an attribute of this name is read from.
    pub fn of(name: &str) -> Source {
        match name {
            "skill" => Source::Skill,
            "nat_type" => Source::NatType,
            "game_in_progress" => Source::GameInProgress,
            "big_party_count" => Source::BigPartyCount,
            "player_count" => Source::PlayerCount,
            _ => Source::Map,
        }
    }

    /// The kind that a built-in attribute must be declared with; `None` where any kind will do.
    pub fn required_kind(self) -> Option<ValueKind> {
        match self {
            Source::Map => None,
            Source::GameInProgress => Some(ValueKind::Flag),
            Source::Skill | Source::NatType | Source::BigPartyCount | Source::PlayerCount => Some(ValueKind::Number),
        }
    }
}

/// How the players' values of an attribute become the party's one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
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

impl Reduction {
    /// One number out of several; `None` out of none.
    pub fn reduce(self, values: &[f64]) -> Option<f64> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        Some(match self {
            Reduction::Mean => values.iter().sum::<f64>() / count,
            Reduction::Sum => values.iter().sum(),
            Reduction::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Reduction::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Reduction::Median => {
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
    Server,
    /// A claim in the caller's signed token.
    Token,
}

/// Who said what a session says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// A game client, on a machine that its player controls.
    #[default]
    Client,
    /// A game server.
    Server,
}

impl Trust {
    /// Whether a value that `origin` stated is believed.
    pub fn believes(self, origin: Origin) -> bool {
        match (self, origin) {
            (Trust::Client, _) | (Trust::Server, Origin::Server) => true,
            (Trust::Server, Origin::Client) | (Trust::Token, _) => false,
        }
    }
}

/// One declared attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// What clients and rules call it.
    pub name: Box<str>,
    /// What values it takes.
    pub kind: ValueKind,
    /// Where its value is read.
    pub source: Source,
    /// For numbers, the range that soft filters normalise over (S1-19); values outside are clamped there, never here.
    pub range: Option<(f64, f64)>,
    /// What the numbers count, for people.
    pub unit: Box<str>,
    /// How players' values become the party's.
    pub reduction: Reduction,
    /// Who is believed about it.
    pub trust: Trust,
}
