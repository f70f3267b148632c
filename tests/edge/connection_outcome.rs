//! Connection outcomes of one attack, as numbers that can be sent from one process to another.

use std::fmt;
use std::time::Duration;

/// Outcome of all connections of an attack.
#[derive(Clone, Default, PartialEq)]
pub(crate) struct ConnectionOutcome {
    /// Number of closed connections.
    pub(crate) closed: usize,
    /// Longest lifetime of a closed connection.
    pub(crate) longest: Duration,
    /// Age of each connection that was open at the end.
    pub(crate) open: Vec<Duration>,
    pub(crate) goaways: usize,
    pub(crate) resets: usize,
    pub(crate) answered: usize,
}

impl ConnectionOutcome {
    /// Adds a connection that was closed at this age.
    pub(crate) fn was_closed(&mut self, age: Duration) {
        self.closed += 1;
        self.longest = self.longest.max(age);
    }

    /// Adds the connections of another attacker.
    pub(crate) fn add(&mut self, other: Self) {
        self.closed += other.closed;
        self.longest = self.longest.max(other.longest);
        self.open.extend(other.open);
        self.goaways += other.goaways;
        self.resets += other.resets;
        self.answered += other.answered;
    }

    /// All numbers in one line.
    pub(crate) fn to_line(&self) -> String {
        let Self { closed, longest, open, goaways, resets, answered } = self;
        let ages: Vec<String> = open.iter().map(|age| age.as_millis().to_string()).collect();
        format!("{closed} {} {goaways} {resets} {answered} {}", longest.as_millis(), ages.join(" "))
    }

    /// Parses a line of `to_line`.
    pub(crate) fn from_line(line: &str) -> Self {
        let mut words = line.split_whitespace().map(|word| word.parse::<usize>().expect("a number"));
        let mut next = || words.next().expect("five numbers at least");
        let (closed, longest, goaways, resets, answered) = (next(), next(), next(), next(), next());
        let ms = |ms| Duration::from_millis(ms as u64);
        Self { closed, longest: ms(longest), goaways, resets, answered, open: words.map(ms).collect() }
    }
}

/// A summary in one line, since there may be tens of thousands of connections.
impl fmt::Debug for ConnectionOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, oldest) = (self.open.len(), self.open.iter().max().copied().unwrap_or_default().max(self.longest));
        write!(f, "{} closed, {open} open, the oldest {oldest:.2?}, {} with GOAWAY, ", self.closed, self.goaways)?;
        write!(f, "{} streams reset, {} answered", self.resets, self.answered)
    }
}
