//! Measurement of beacons, against real responders in simulated time.

mod any_trouble;
mod keeping_fresh;
mod measuring;
mod world;
