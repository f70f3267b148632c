//! Constants of a rating system by their names in XML.

use crate::ruleset::rating::RatingSystem;

impl RatingSystem {
    /// Constants with their names in XML.
    pub fn constants(&self) -> Vec<(&'static str, f64)> {
        match *self {
            Self::Elo { initial, k, scale } => vec![("Initial", initial), ("K", k), ("Scale", scale)],
            Self::Glicko { initial, deviation, min_deviation, c, period_ms } => vec![
                ("Initial", initial),
                ("Deviation", deviation),
                ("MinDeviation", min_deviation),
                ("C", c),
                ("PeriodMs", period_ms as f64),
            ],
            Self::Glicko2 { initial, deviation, volatility, tau, period_ms } => vec![
                ("Initial", initial),
                ("Deviation", deviation),
                ("Volatility", volatility),
                ("Tau", tau),
                ("PeriodMs", period_ms as f64),
            ],
            Self::TrueSkill { mu, sigma, beta, tau, draw_percent } => {
                vec![("Mu", mu), ("Sigma", sigma), ("Beta", beta), ("Tau", tau), ("DrawPercent", draw_percent)]
            }
            Self::PlackettLuce { mu, sigma, beta, kappa, tau } => {
                vec![("Mu", mu), ("Sigma", sigma), ("Beta", beta), ("Kappa", kappa), ("Tau", tau)]
            }
        }
    }

    /// The system with another value of the constant `name`; the same if it has none of that name.
    pub fn with_constant(self, name: &str, value: f64) -> Self {
        let mut system = self;
        match &mut system {
            Self::Elo { initial, k, scale } => match name {
                "Initial" => *initial = value,
                "K" => *k = value,
                "Scale" => *scale = value,
                _ => {}
            },
            Self::Glicko { initial, deviation, min_deviation, c, period_ms } => match name {
                "Initial" => *initial = value,
                "Deviation" => *deviation = value,
                "MinDeviation" => *min_deviation = value,
                "C" => *c = value,
                "PeriodMs" => *period_ms = value as u64,
                _ => {}
            },
            Self::Glicko2 { initial, deviation, volatility, tau, period_ms } => match name {
                "Initial" => *initial = value,
                "Deviation" => *deviation = value,
                "Volatility" => *volatility = value,
                "Tau" => *tau = value,
                "PeriodMs" => *period_ms = value as u64,
                _ => {}
            },
            Self::TrueSkill { mu, sigma, beta, tau, draw_percent } => match name {
                "Mu" => *mu = value,
                "Sigma" => *sigma = value,
                "Beta" => *beta = value,
                "Tau" => *tau = value,
                "DrawPercent" => *draw_percent = value,
                _ => {}
            },
            Self::PlackettLuce { mu, sigma, beta, kappa, tau } => match name {
                "Mu" => *mu = value,
                "Sigma" => *sigma = value,
                "Beta" => *beta = value,
                "Kappa" => *kappa = value,
                "Tau" => *tau = value,
                _ => {}
            },
        }
        system
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_constant_changes_the_named_constant_alone() {
        let systems = [
            RatingSystem::Elo { initial: 1.0, k: 2.0, scale: 3.0 },
            RatingSystem::Glicko { initial: 1.0, deviation: 2.0, min_deviation: 3.0, c: 4.0, period_ms: 5 },
            RatingSystem::Glicko2 { initial: 1.0, deviation: 2.0, volatility: 3.0, tau: 4.0, period_ms: 5 },
            RatingSystem::TrueSkill { mu: 1.0, sigma: 2.0, beta: 3.0, tau: 4.0, draw_percent: 5.0 },
            RatingSystem::PlackettLuce { mu: 1.0, sigma: 2.0, beta: 3.0, kappa: 4.0, tau: 5.0 },
        ];
        for system in systems {
            for (index, (name, _)) in system.constants().into_iter().enumerate() {
                let mut expected = system.constants();
                expected[index].1 = 9.0;
                assert_eq!(system.with_constant(name, 9.0).constants(), expected, "{name}");
            }
            assert_eq!(system.with_constant("Other", 9.0), system);
        }
    }
}
