//! Worst pair of the parties of a match: the two with the longest round trip between each other.

use crate::latency::LatencyModel;
use crate::latency::round_trip_estimate::{EstimateEnd, RoundTripEstimate, estimate_round_trip};

/// Two parties whose round trip no other pair exceeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorstPair {
    /// Indices of the parties, the lower one first.
    pub party_indices: [u16; 2],
    /// Estimated round trip between them; `None`: it is unknown, which is worse than any.
    pub estimate: Option<RoundTripEstimate>,
}

impl WorstPair {
    /// Pair with the highest high end; of equal ones the first. `None` for fewer than two parties.
    pub fn of_parties(model: &LatencyModel, parties: &[EstimateEnd<'_>]) -> Option<Self> {
        let numbered = || parties.iter().zip(0_u16..);
        let pairs = numbered().flat_map(|(one, first)| {
            let others = numbered().skip(usize::from(first) + 1);
            others.map(move |(other, second)| Self {
                party_indices: [first, second],
                estimate: estimate_round_trip(model, *one, *other),
            })
        });
        pairs.reduce(|worst, pair| if worst.high_ms() < pair.high_ms() { pair } else { worst })
    }

    fn high_ms(&self) -> f64 {
        self.estimate.map_or(f64::INFINITY, |estimate| estimate.high_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::round_trip_estimate::EstimateSource;
    use crate::latency::{DEFAULT_LATENCY_MODEL, LatencyEndpoint};
    use crate::locality::Locality;

    /// Worst pair of parties at these longitudes on the equator; one without a longitude has no place.
    fn worst_of(longitudes: &[Option<f64>]) -> Option<WorstPair> {
        let end = |longitude: &Option<f64>| EstimateEnd {
            locality_and_region_latencies: LatencyEndpoint {
                locality: longitude.and_then(|longitude| Locality::from_degrees(0.0, longitude)),
                region_latencies: &[],
            },
            prediction_end: None,
        };
        let parties: Vec<EstimateEnd<'_>> = longitudes.iter().map(end).collect();
        WorstPair::of_parties(&DEFAULT_LATENCY_MODEL, &parties)
    }

    #[test]
    fn worst_pair_is_the_first_of_the_longest_round_trips() {
        assert_eq!(worst_of(&[]), None);
        assert_eq!(worst_of(&[Some(1.0)]), None);
        let worst = worst_of(&[Some(10.0), Some(0.0), Some(4.0), Some(10.0)]).unwrap();
        assert_eq!(worst.party_indices, [0, 1]);
        let estimate = worst.estimate.unwrap();
        assert_eq!(estimate.source, EstimateSource::Distance);
        let nearer = worst_of(&[Some(10.0), Some(4.0)]).unwrap().estimate.unwrap();
        assert!(nearer.high_ms() < estimate.high_ms());
    }

    #[test]
    fn unknown_round_trip_is_worse_than_any() {
        let worst = worst_of(&[Some(0.0), Some(180.0), None, None]).unwrap();
        assert_eq!(worst, WorstPair { party_indices: [0, 2], estimate: None });
    }
}
