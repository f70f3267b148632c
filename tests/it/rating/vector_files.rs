//! Files of vectors of rating systems.

use serde::Deserialize;

/// Vectors of Elo.
#[derive(Deserialize)]
pub(crate) struct EloVectors {
    pub(crate) tables: Vec<EloRow>,
    pub(crate) expected: Vec<Expected>,
    pub(crate) draws_k16: Vec<Draw>,
    pub(crate) team_update_k32: Vec<TeamUpdate>,
}

impl EloVectors {
    /// Reads the file.
    pub(crate) fn read() -> Self {
        serde_json::from_str(include_str!("../../vectors/elo.json")).expect("the vectors of elo")
    }
}

/// Row of the first table of the thesis.
#[derive(Deserialize)]
pub(crate) struct EloRow {
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) score_a: f64,
    pub(crate) k: f64,
    pub(crate) a_after: f64,
    pub(crate) b_after: f64,
}

/// Expected score of a player.
#[derive(Deserialize)]
pub(crate) struct Expected {
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) e: f64,
}

/// Draw of two players.
#[derive(Deserialize)]
pub(crate) struct Draw {
    pub(crate) a: f64,
    pub(crate) b: f64,
    pub(crate) after: [f64; 2],
}

/// Change of two teams.
#[derive(Deserialize)]
pub(crate) struct TeamUpdate {
    pub(crate) team_a: Vec<f64>,
    pub(crate) team_b: Vec<f64>,
    pub(crate) a_wins: Option<bool>,
    pub(crate) a_exact: Vec<f64>,
    pub(crate) b_exact: Vec<f64>,
}

/// Vectors of Glicko.
#[derive(Deserialize)]
pub(crate) struct GlickoVectors {
    pub(crate) tables: Vec<GlickoRow>,
    pub(crate) rd_growth: Vec<DeviationGrowth>,
    pub(crate) g: Vec<GFactor>,
    pub(crate) interval_2rd: Vec<Interval>,
    pub(crate) period: Vec<Period>,
}

impl GlickoVectors {
    /// Reads the file.
    pub(crate) fn read() -> Self {
        serde_json::from_str(include_str!("../../vectors/glicko.json")).expect("the vectors of glicko")
    }
}

/// Row of the tables of the thesis: rating and deviation.
#[derive(Deserialize)]
pub(crate) struct GlickoRow {
    pub(crate) a: [f64; 2],
    pub(crate) b: [f64; 2],
    pub(crate) score_a: f64,
    pub(crate) a_after: [f64; 2],
    pub(crate) b_after: [f64; 2],
}

/// Deviation after some periods without a match.
#[derive(Deserialize)]
pub(crate) struct DeviationGrowth {
    pub(crate) rd: f64,
    pub(crate) c: f64,
    pub(crate) t: u64,
    pub(crate) rd_after: f64,
}

/// Glickman's g of a deviation.
#[derive(Deserialize)]
pub(crate) struct GFactor {
    pub(crate) rd: f64,
    pub(crate) g: f64,
}

/// Interval of two deviations.
#[derive(Deserialize)]
pub(crate) struct Interval {
    pub(crate) r: f64,
    pub(crate) rd: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Glickman's example of a period.
#[derive(Deserialize)]
pub(crate) struct Period {
    pub(crate) player: [f64; 2],
    pub(crate) opponents: Vec<[f64; 3]>,
    pub(crate) after: [f64; 2],
}

/// Vectors of Glicko-2.
#[derive(Deserialize)]
pub(crate) struct Glicko2Vectors {
    pub(crate) cases: Vec<Glicko2Case>,
}

impl Glicko2Vectors {
    /// Reads the file.
    pub(crate) fn read() -> Self {
        serde_json::from_str(include_str!("../../vectors/glicko2.json")).expect("the vectors of glicko2")
    }
}

/// Player, with volatility, and opponents of one period.
#[derive(Deserialize)]
pub(crate) struct Glicko2Case {
    pub(crate) id: String,
    pub(crate) player: [f64; 3],
    pub(crate) opponents: Vec<[f64; 2]>,
    pub(crate) scores: Vec<f64>,
    pub(crate) tau: f64,
    pub(crate) result: [f64; 3],
}

/// Vectors of TrueSkill or Plackett-Luce.
#[derive(Deserialize)]
pub(crate) struct TeamVectors {
    pub(crate) cases: Vec<TeamCase>,
}

impl TeamVectors {
    /// Reads the file of TrueSkill.
    pub(crate) fn read_trueskill() -> Self {
        serde_json::from_str(include_str!("../../vectors/trueskill.json")).expect("the vectors of TrueSkill")
    }

    /// Reads the file of Plackett-Luce.
    pub(crate) fn read_plackett_luce() -> Self {
        serde_json::from_str(include_str!("../../vectors/plackett_luce.json")).expect("the vectors of Plackett-Luce")
    }
}

/// Match of teams.
#[derive(Deserialize)]
pub(crate) struct TeamCase {
    pub(crate) id: String,
    pub(crate) tau: f64,
    #[serde(default)]
    pub(crate) draw_probability: f64,
    pub(crate) teams: Vec<Vec<[f64; 2]>>,
    pub(crate) ranks: Vec<u32>,
    pub(crate) result: Vec<Vec<[f64; 2]>>,
}

/// DuelVectors of Plackett-Luce.
#[derive(Deserialize)]
pub(crate) struct DuelVectors {
    pub(crate) cases_1v1: Vec<DuelCase>,
}

impl DuelVectors {
    /// Reads the file.
    pub(crate) fn read() -> Self {
        serde_json::from_str(include_str!("../../vectors/plackett_luce.json")).expect("the vectors of plackett_luce")
    }
}

/// DuelCase.
#[derive(Deserialize)]
pub(crate) struct DuelCase {
    pub(crate) a: [f64; 2],
    pub(crate) b: [f64; 2],
    pub(crate) outcome_for_a: f64,
    pub(crate) a_after: [f64; 2],
    pub(crate) b_after: [f64; 2],
}
