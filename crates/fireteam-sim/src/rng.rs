//! Dice that are thrown by name: whoever asks about the same thing of the same world gets the same numbers, whatever
//! else was thrown before.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// Dice for one question. PCG is the same on every machine and in every version.
pub type SimRng = Pcg64Mcg;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RngPurpose {
    /// Who a party is and where it lives.
    Party = 1,
    /// When it next sits down to play.
    PlaySession = 2,
    /// How one visit to the queue goes: patience and pause.
    QueueVisit = 3,
    /// What it says to a ready check.
    ReadyCheckResponse = 4,
    /// How a match is played.
    MatchPlay = 5,
    /// A pass.
    Pass = 6,
    /// Matches of earlier days.
    PriorMatches = 7,
    /// Names of tickets, matches and people.
    GeneratedId = 8,
    /// The study.
    Study = 9,
}

/// Dice about `what`: the `which`-th time that `who` is asked, in the world of `seed`.
pub fn stream_rng(seed: u64, what: RngPurpose, who: u64, which: u64) -> SimRng {
    SimRng::seed_from_u64(stream_seed(seed, what, who, which))
}

/// One number instead of dice.
pub fn stream_seed(seed: u64, what: RngPurpose, who: u64, which: u64) -> u64 {
    [what as u64, who, which]
        .into_iter()
        .fold(split_mix_64(seed), |mixed, word| split_mix_64(mixed ^ split_mix_64(word)))
}

/// Sixteen bytes that name the `which`-th thing of a kind.
pub fn generated_id(seed: u64, kind: u64, which: u64) -> [u8; 16] {
    let half = |half| stream_seed(seed, RngPurpose::GeneratedId, kind * 2 + half, which);
    (u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes()
}

/// SplitMix64's step (Steele, Lea and Flood, 2014): every bit of the word moves every bit of the answer.
fn split_mix_64(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng as _;

    #[test]
    fn rng_streams_are_reproducible_and_distinct() {
        let throw = |seed, what, who, which| stream_rng(seed, what, who, which).random::<u64>();
        let asked = throw(1, RngPurpose::QueueVisit, 2, 3);
        assert_eq!(asked, throw(1, RngPurpose::QueueVisit, 2, 3));
        let others = [
            throw(2, RngPurpose::QueueVisit, 2, 3),
            throw(1, RngPurpose::ReadyCheckResponse, 2, 3),
            throw(1, RngPurpose::QueueVisit, 3, 3),
            throw(1, RngPurpose::QueueVisit, 2, 4),
            throw(1, RngPurpose::QueueVisit, 3, 2),
        ];
        assert!(!others.contains(&asked));
    }
}
