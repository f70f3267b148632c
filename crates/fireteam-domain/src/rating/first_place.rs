//! Chance of each of several sides to have the best performance, where performances are independent and normal
//! (Thurstone 1927, "A law of comparative judgment", case III; Weng and Lin 2011, section 3, for two sides).
//!
//! Side i is first with the probability `∫ f_i(x) Π F_j(x) dx` over all other sides j, with density f and distribution F
//! of their performances. Two sides have the closed form `Φ(d / sqrt(v_1 + v_2))`.

/// Normal distribution of a side's performance.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormalPerformance {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

/// Deviations to either side of a mean beyond which a performance does not count: 1e-17 of the probability.
const TAIL_DEVIATIONS: f64 = 8.5;

/// Steps per smallest deviation. The trapezoidal rule converges exponentially for these integrands; the error is below 1e-9.
const STEPS_PER_DEVIATION: f64 = 4.0;

/// Maximum number of steps. Only sides whose deviations differ by a factor of a hundred need more.
const STEPS_MAX: f64 = 8_192.0;

/// Probability of each side to have the best performance; the sum is 1.
pub(super) fn first_place_probabilities(sides: &[NormalPerformance]) -> Vec<f64> {
    let smallest = sides.iter().map(|side| side.deviation).fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
    let bound = |sign: f64| {
        let bounds = sides.iter().map(move |side| side.mean + sign * TAIL_DEVIATIONS * side.deviation);
        bounds.fold(f64::NEG_INFINITY, f64::max)
    };
    // Below the highest lower bound, one side is certainly better.
    let (from, to) = (bound(-1.0), bound(1.0));
    let steps = ((to - from) / smallest * STEPS_PER_DEVIATION).ceil().clamp(1.0, STEPS_MAX);
    let step = (to - from) / steps;
    let mut chances = vec![0.0; sides.len()];
    let mut below = vec![0.0; sides.len()];
    for index in 0..=steps as u32 {
        let x = from + step * f64::from(index);
        for (below, side) in below.iter_mut().zip(sides) {
            *below = normal_cdf((x - side.mean) / side.deviation.max(f64::MIN_POSITIVE));
        }
        add_density_of_best(&mut chances, sides, &below, x);
    }
    let total: f64 = chances.iter().sum();
    if total <= 0.0 || !total.is_finite() {
        return vec![1.0 / sides.len().max(1) as f64; sides.len()];
    }
    chances.iter().map(|chance| chance / total).collect()
}

/// Adds for each side the density at `x`, times the probability that all others are below.
fn add_density_of_best(chances: &mut [f64], sides: &[NormalPerformance], below: &[f64], x: f64) {
    // Products of all before, and then of all after each side: none is divided by, since they may be 0.
    let mut product = 1.0;
    let mut before = Vec::with_capacity(sides.len());
    for value in below {
        before.push(product);
        product *= value;
    }
    let mut after = 1.0;
    for index in (0..sides.len()).rev() {
        let NormalPerformance { mean, deviation } = sides[index];
        let z = (x - mean) / deviation.max(f64::MIN_POSITIVE);
        chances[index] += (-z * z / 2.0).exp() / deviation.max(f64::MIN_POSITIVE) * before[index] * after;
        after *= below[index];
    }
}

/// Cumulative distribution function of the standard normal distribution, exact to 1e-12. Near the middle it uses the
/// series of the error function, in the tails its continued fraction (Abramowitz and Stegun 26.2.11 and 26.2.14).
pub(super) fn normal_cdf(x: f64) -> f64 {
    if x.is_nan() {
        return 0.5;
    }
    let z = x.abs();
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let upper = if z < 3.0 {
        let (mut term, mut sum) = (z, z);
        for odd in (3..200).step_by(2) {
            term *= z * z / f64::from(odd);
            sum += term;
        }
        0.5 - density * sum
    } else if z < 38.0 {
        let fraction = (1..=60).rev().fold(z, |below, step| z + f64::from(step) / below);
        density / fraction
    } else {
        0.0
    };
    if x < 0.0 { upper } else { 1.0 - upper }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(mean: f64, deviation: f64) -> NormalPerformance {
        NormalPerformance { mean, deviation }
    }

    /// Chance of the first side by a fine sum over its own performance, one side at a time.
    fn slow_chance(sides: &[NormalPerformance], first: usize) -> f64 {
        let (steps, width) = (200_000, 20.0);
        let mut sum = 0.0;
        for index in 0..steps {
            let z = -width / 2.0 + width * (f64::from(index) + 0.5) / f64::from(steps);
            let x = sides[first].mean + z * sides[first].deviation;
            let others = sides.iter().enumerate().filter(|(index, _)| *index != first);
            let all_below: f64 = others.map(|(_, other)| normal_cdf((x - other.mean) / other.deviation)).product();
            sum += (-z * z / 2.0).exp() * all_below;
        }
        sum * width / f64::from(steps) / (2.0 * std::f64::consts::PI).sqrt()
    }

    /// The quadrature equals a fine sum, and for two sides the closed form.
    #[test]
    fn first_place_probability_equals_the_slow_sum() {
        for sides in [
            vec![side(25.0, 9.3), side(25.0, 9.3)],
            vec![side(31.0, 5.0), side(25.0, 4.0)],
            vec![side(25.0, 9.3), side(30.0, 5.0), side(20.0, 6.0)],
            vec![side(0.0, 1.0), side(0.5, 20.0), side(-3.0, 4.0), side(1.0, 2.0)],
            vec![side(100.0, 1.0), side(0.0, 1.0), side(0.0, 1.0)],
        ] {
            let found = first_place_probabilities(&sides);
            assert!((found.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{found:?}");
            for (index, chance) in found.iter().enumerate() {
                let expected = slow_chance(&sides, index);
                assert!((chance - expected).abs() < 1e-8, "{sides:?} {index}: {chance} {expected}");
            }
            if let [one, other] = sides[..] {
                let closed = normal_cdf((one.mean - other.mean) / one.deviation.hypot(other.deviation));
                assert!((found[0] - closed).abs() < 1e-8, "{found:?} {closed}");
            }
        }
    }

    /// Equal sides share the first place, for any number of them.
    #[test]
    fn first_place_is_shared_by_equal_sides() {
        for count in [1, 2, 3, 8, 64] {
            let found = first_place_probabilities(&vec![side(25.0, 9.3); count]);
            assert!(found.iter().all(|chance| (chance - 1.0 / count as f64).abs() < 1e-12), "{found:?}");
        }
    }

    #[test]
    fn normal_cdf_is_right_to_twelve_digits() {
        for (x, expected) in [(0.0, 0.5), (-2.0, 0.022_750_131_948_179_2), (3.5, 0.999_767_370_920_964_5), (-40.0, 0.0)]
        {
            assert!((normal_cdf(x) - expected).abs() < 1e-12, "{x}: {}", normal_cdf(x));
        }
    }
}
