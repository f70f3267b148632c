//! What became of the connections of one attack, in numbers that can be told from one process to another.

use std::fmt;
use std::time::Duration;

/// What became of them.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct Fate {
    /// How many were closed.
    pub(crate) closed: usize,
    /// How long that one lived which lived longest.
    pub(crate) longest: Duration,
    /// How old those were that were open at the end.
    pub(crate) open: Vec<Duration>,
    pub(crate) goaways: usize,
    pub(crate) resets: usize,
    pub(crate) answered: usize,
}

impl Fate {
    /// One more was closed, at that age.
    pub(crate) fn was_closed(&mut self, age: Duration) {
        self.closed += 1;
        self.longest = self.longest.max(age);
    }

    /// Another attacker's.
    pub(crate) fn add(&mut self, other: Self) {
        self.closed += other.closed;
        self.longest = self.longest.max(other.longest);
        self.open.extend(other.open);
        self.goaways += other.goaways;
        self.resets += other.resets;
        self.answered += other.answered;
    }

    /// All of it, as words of numbers.
    pub(crate) fn told(&self) -> String {
        let Self { closed, longest, open, goaways, resets, answered } = self;
        let ages: Vec<String> = open.iter().map(|age| age.as_millis().to_string()).collect();
        format!("{closed} {} {goaways} {resets} {answered} {}", longest.as_millis(), ages.join(" "))
    }

    /// What was told.
    pub(crate) fn of_told(told: &str) -> Self {
        let mut words = told.split_whitespace().map(|word| word.parse::<usize>().expect("a number"));
        let mut next = || words.next().expect("five numbers at least");
        let (closed, longest, goaways, resets, answered) = (next(), next(), next(), next(), next());
        let ms = |ms| Duration::from_millis(ms as u64);
        Self { closed, longest: ms(longest), goaways, resets, answered, open: words.map(ms).collect() }
    }
}

/// In one line: there may be tens of thousands.
impl fmt::Debug for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, oldest) = (self.open.len(), self.open.iter().max().copied().unwrap_or_default().max(self.longest));
        write!(f, "{} closed, {open} open, the oldest {oldest:.2?}, {} told to go, ", self.closed, self.goaways)?;
        write!(f, "{} streams reset, {} answered", self.resets, self.answered)
    }
}
