//! Bundled rulesets: used by a server without a ruleset directory.

use std::path::PathBuf;
use std::sync::Arc;

use crate::domain::ruleset::Ruleset;
use crate::rules::{FileDiagnostic, parse_ruleset};

/// File names and contents.
pub const BUNDLED_FILES: [(&str, &str); 7] = [
    ("rulesets/casual_quickplay.xml", include_str!("../../rulesets/casual_quickplay.xml")),
    ("rulesets/challenge_5v5.xml", include_str!("../../rulesets/challenge_5v5.xml")),
    ("rulesets/comprl_ladder.xml", include_str!("../../rulesets/comprl_ladder.xml")),
    ("rulesets/destiny_control_6v6.xml", include_str!("../../rulesets/destiny_control_6v6.xml")),
    ("rulesets/openmatchmaking_leagues.xml", include_str!("../../rulesets/openmatchmaking_leagues.xml")),
    ("rulesets/ranked_duel.xml", include_str!("../../rulesets/ranked_duel.xml")),
    ("rulesets/teiserver_duel.xml", include_str!("../../rulesets/teiserver_duel.xml")),
];

/// Parses all bundled rulesets. A test keeps them valid, so problems mean a broken build.
pub fn load_bundled() -> Result<Vec<(PathBuf, Arc<Ruleset>)>, Vec<FileDiagnostic>> {
    BUNDLED_FILES
        .iter()
        .map(|(name, text)| parse_ruleset(name, text).map(|ruleset| (name.into(), Arc::new(ruleset))))
        .collect()
}
