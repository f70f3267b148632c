//! The one test binary beside the units: what is seen from outside.

mod geo_vectors;
