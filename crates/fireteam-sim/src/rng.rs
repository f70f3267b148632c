//! Named random streams: the numbers of a stream depend on the world's seed and the stream's name only, not on other
//! draws.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// Generator of one random stream. PCG gives the same numbers on every machine and in every version.
pub type SimRng = Pcg64Mcg;

/// Purpose of a random stream, part of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RngPurpose {
    /// Members and city of a party.
    Party = 1,
    /// Start of the next play session.
    PlaySession = 2,
    /// Patience and pause of one visit to the queue.
    QueueVisit = 3,
    /// Response to a ready check.
    ReadyCheckResponse = 4,
    /// Duration and result of a match.
    MatchPlay = 5,
    /// Seed of a pass.
    Pass = 6,
    /// Matches before the world begins.
    PriorMatches = 7,
    /// Ids of tickets, matches and users.
    GeneratedId = 8,
    /// Rating study.
    Study = 9,
    /// Sessions that searches may join.
    SearchedSession = 10,
    /// Start and city of a search, and the keys of its loop.
    Search = 11,
    /// Packets and calls of a search.
    SearchPacket = 12,
}

/// Random stream for a purpose and its `index`-th use by `subject`, in the world of `seed`.
pub fn stream_rng(seed: u64, purpose: RngPurpose, subject: u64, index: u64) -> SimRng {
    SimRng::seed_from_u64(stream_seed(seed, purpose, subject, index))
}

/// Seed of a random stream.
pub fn stream_seed(seed: u64, purpose: RngPurpose, subject: u64, index: u64) -> u64 {
    [purpose as u64, subject, index]
        .into_iter()
        .fold(split_mix_64(seed), |mixed, word| split_mix_64(mixed ^ split_mix_64(word)))
}

/// Id of 16 bytes for the `index`-th object of a kind.
pub fn generated_id(seed: u64, kind: u64, index: u64) -> [u8; 16] {
    let half = |half| stream_seed(seed, RngPurpose::GeneratedId, kind * 2 + half, index);
    (u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes()
}

/// Step of SplitMix64 (Steele, Lea and Flood, 2014): each input bit affects each output bit.
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
        let first_number = |seed, purpose, subject, index| stream_rng(seed, purpose, subject, index).random::<u64>();
        let number = first_number(1, RngPurpose::QueueVisit, 2, 3);
        assert_eq!(number, first_number(1, RngPurpose::QueueVisit, 2, 3));
        let others = [
            first_number(2, RngPurpose::QueueVisit, 2, 3),
            first_number(1, RngPurpose::ReadyCheckResponse, 2, 3),
            first_number(1, RngPurpose::QueueVisit, 3, 3),
            first_number(1, RngPurpose::QueueVisit, 2, 4),
            first_number(1, RngPurpose::QueueVisit, 3, 2),
        ];
        assert!(!others.contains(&number));
    }
}
