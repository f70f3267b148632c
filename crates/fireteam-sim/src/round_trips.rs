//! True round trips between locations: measured ones of a matrix, otherwise by the ruleset's latency model.

use fireteam_domain::latency::LatencyModel;
use fireteam_domain::locality::{KM_PER_MILE, Locality};

use crate::latency_matrix::LatencyMatrix;

/// Round trips between locations.
pub(crate) struct RoundTrips<'a> {
    pub(crate) latency_model: &'a LatencyModel,
    pub(crate) matrix: Option<&'a LatencyMatrix>,
    /// Added to each measured round trip, milliseconds.
    pub(crate) last_mile_ms: f64,
}

/// Location and, with a matrix, its nearest site and the distance to it in miles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteEndpoint {
    pub(crate) location: Locality,
    pub(crate) nearest_site: (usize, f64),
}

impl RoundTrips<'_> {
    /// End of a route at a location.
    pub(crate) fn endpoint_at(&self, location: Locality) -> RouteEndpoint {
        RouteEndpoint { location, nearest_site: self.matrix.map_or((0, 0.0), |matrix| matrix.nearest_site(location)) }
    }

    /// Round trip between two locations, milliseconds.
    pub(crate) fn round_trip_between_ms(&self, from: &RouteEndpoint, to: &RouteEndpoint) -> f64 {
        let measured = self.matrix.and_then(|matrix| matrix.round_trip_ms(from.nearest_site.0, to.nearest_site.0));
        match measured {
            // The latency model's slope covers the distance from a location to its site.
            Some(ms) => {
                let km_to_sites = (from.nearest_site.1 + to.nearest_site.1) * KM_PER_MILE / 1000.0;
                ms + self.last_mile_ms + self.latency_model.ms_per_1000_km * km_to_sites
            }
            None => self.latency_model.round_trip_ms(from.location.chord_miles(to.location)),
        }
    }
}
