//! Random wishes of tickets, drawn apart from everything else.

use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{QueueFixture, one_in, random_below};
use crate::session::SessionDetails;
use crate::wish::{AcceptedValues, Wish, WishStep};

/// Wishes of the ticket `number` in the random fixture of `seed`. No ticket of every other fixture has any.
pub(in crate::queue) fn random_wishes(seed: u64, number: u64) -> Option<Box<SessionDetails>> {
    let mut rng = SplitMix64(seed << 32 | number);
    if seed.is_multiple_of(2) || !one_in(&mut rng, 3) {
        return None;
    }
    let subjects = ["skill", "mode", "taste", "latency", "unknown"].into_iter().filter(|_| one_in(&mut rng, 3));
    let wishes: Vec<Wish> = subjects.collect::<Vec<_>>().into_iter().map(|name| random_wish(&mut rng, name)).collect();
    SessionDetails::from_wishes(wishes)
}

fn random_wish(rng: &mut SplitMix64, name: &str) -> Wish {
    let max = one_in(rng, 2).then(|| 4.0 + random_below(rng, 12) as f64);
    let min = max.is_none().then(|| random_below(rng, 6) as f64);
    let texts = ["t0", "t1"].into_iter().skip(random_below(rng, 2) as usize).map(Into::into).collect();
    let (first, wider) = match name {
        "mode" => (AcceptedValues::Strings(texts), AcceptedValues::Strings(["t0", "t1", "t2"].map(Into::into).into())),
        "latency" => {
            let numbers = |max| AcceptedValues::Numbers { min: None, max: Some(max) };
            (numbers(50.0), numbers(150.0))
        }
        _ => {
            let (wider_min, wider_max) = (min.map(|min| min - 3.0), max.map(|max| max + 4.0));
            (AcceptedValues::Numbers { min, max }, AcceptedValues::Numbers { min: wider_min, max: wider_max })
        }
    };
    let steps = [(0, first), (17_000, wider), (51_000, AcceptedValues::Any)];
    let count = 1 + random_below(rng, 3) as usize;
    let steps = steps.into_iter().take(count).map(|(start_ms, accepted)| WishStep { start_ms, accepted });
    Wish::new(name, one_in(rng, 2), steps.collect()).expect("each step accepts more")
}

/// Makes the ruleset allow no wishes, so that those of the tickets are ignored.
pub(in crate::queue) fn forbid_wishes(fixture: &mut QueueFixture) {
    fixture.ruleset.allows_latency_wishes = false;
    fixture.ruleset.attributes.iter_mut().for_each(|attribute| attribute.allows_wishes = false);
}
