//! Random wishes of advertisements and searchers.

use crate::index::tests::random_world::IndexTestRng;
use crate::session::SessionDetails;
use crate::wish::{AcceptedValues, Wish, WishStep};

/// Wishes for attributes `a0` to `a8` of the random world, of which the last is unknown, and for the round trip.
pub(super) fn random_wishes(rng: &mut IndexTestRng) -> Option<Box<SessionDetails>> {
    if !rng.one_in(3) {
        return None;
    }
    let subjects: Vec<usize> = (0..10).filter(|_| rng.one_in(8)).collect();
    let wishes: Vec<Wish> = subjects.into_iter().map(|index| random_wish(rng, index)).collect();
    SessionDetails::from_wishes(wishes)
}

fn random_wish(rng: &mut IndexTestRng, index: usize) -> Wish {
    let name = if index == 9 { "latency".to_owned() } else { format!("a{index}") };
    let (first, wider) = match index {
        3 | 4 | 6 | 7 => {
            let words = |words: &[&str]| AcceptedValues::Strings(words.iter().map(|word| (*word).into()).collect());
            (words(&["eu", "sa"]), words(&["as", "eu", "sa"]))
        }
        5 => (AcceptedValues::Flag(rng.one_in(2)), AcceptedValues::Any),
        9 => (numbers(None, Some(50.0)), numbers(None, Some(150.0))),
        _ => {
            let min = (!rng.one_in(3)).then(|| rng.unit_f64() * 600.0 - 600.0);
            let max = (!rng.one_in(3)).then(|| rng.unit_f64() * 600.0);
            (numbers(min, max), numbers(min.map(|min| min - 300.0), max.map(|max| max + 300.0)))
        }
    };
    let steps = [(0, first), (40_000, wider), (120_000, AcceptedValues::Any)];
    let steps = steps.into_iter().take(1 + rng.below(3)).map(|(start_ms, accepted)| WishStep { start_ms, accepted });
    Wish::new(&name, rng.one_in(2), steps.collect()).expect("each step accepts more")
}

fn numbers(min: Option<f64>, max: Option<f64>) -> AcceptedValues {
    AcceptedValues::Numbers { min, max }
}
