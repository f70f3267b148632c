//! Reasons for which no round trip is predicted; the estimate then falls back to distance.

/// Reason for which a round trip cannot be predicted from beacons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PredictionUnavailable {
    /// The fleet has too few live beacons.
    #[error("too few live beacons")]
    TooFewBeacons,
    /// Too few pairs of beacons have a known round trip.
    #[error("too few round trips between beacons are known")]
    TooFewBeaconRoundTrips,
    /// The party has no place.
    #[error("the party has no place")]
    NoPlace,
    /// The party has floors to too few beacons of the fleet.
    #[error("too few floors to live beacons")]
    TooFewFloors,
    /// A vector was completed with other beacons or constants; complete it again.
    #[error("the vector was completed with another fleet; complete it again")]
    OtherFleet,
}
