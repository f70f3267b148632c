//! Ruleset hash: unchanged by another spelling, changed by each other number, word or element.

use std::collections::BTreeSet;

use fireteam::domain::id::RulesetHash;
use fireteam::rules;
use fireteam::rules::bundled::BUNDLED_FILES;
use proptest::prelude::*;

/// A ruleset that uses every section.
const EVERYTHING: &str = include_str!("../../golden/rulesets/everything.xml");

/// A second ruleset, with the alternatives where a section has two.
const EVERYTHING_OTHER: &str = include_str!("../../golden/rulesets/everything_else.xml");

/// Alternative qualities of the second ruleset.
const OTHER_QUALITIES: [&str; 5] = [
    "<SoftScore MaxScore=\"0.4\"/>",
    "<AverageSimilarity RatingSpan=\"2900\" RequiredPercent=\"90\"/>",
    "<CategorySimilarity Categories=\"13\" CategoryWidth=\"200\" RequiredPercent=\"85\"/>",
    "<WinProbability MinPercent=\"20\" MaxPercent=\"70\"/>",
    "<LeaderboardGauss Sigma=\"30\" Scale=\"4\" Threshold=\"0.3\"/>",
];

/// Both rulesets, and the second with each other quality and each other region mode.
fn all_variants() -> Vec<String> {
    let quality = "<LeaderboardGauss Sigma=\"20\" Scale=\"4\" Threshold=\"0.3\"/>";
    let regions = "<Regions Mode=\"quality\" Weight=\"0.25\" SpanMs=\"200\"/>";
    assert!(EVERYTHING_OTHER.contains(quality) && EVERYTHING_OTHER.contains(regions));
    // `maximum_weight` needs two teams; numbers of teams are tested with the other rulesets.
    let selection = "<Selection Mode=\"maximum_weight\" StartWith=\"highest_rated\" MaxCandidates=\"64\" ExactUpToTickets=\"500\"/>";
    assert!(EVERYTHING_OTHER.contains(selection));
    let with_sampling =
        EVERYTHING_OTHER.replace(selection, "<Selection Mode=\"weighted_sample\" MaxCandidates=\"64\"/>");
    let mut all = vec![EVERYTHING.to_owned(), EVERYTHING_OTHER.to_owned()];
    all.extend(OTHER_QUALITIES.map(|other| with_sampling.replace(quality, other)));
    for other in
        ["", "<Regions Mode='partition' Attribute='realm'/>", "<Regions Mode='partition' Attribute='continent'/>"]
    {
        all.push(EVERYTHING_OTHER.replace(regions, other));
    }
    for other in ["<Regions Mode='filter' Expansion='near'/>", "<Regions Mode='filter' Expansion='far'/>"] {
        all.push(EVERYTHING_OTHER.replace(regions, other));
    }
    all
}

fn hash(text: &str) -> RulesetHash {
    match rules::parse_ruleset("hash.xml", text) {
        Ok(ruleset) => ruleset.hash,
        Err(problems) => panic!("{}\n{text}", problems.iter().map(|it| format!("{it}\n")).collect::<String>()),
    }
}

/// Writes an element with another spelling: attribute order, quotes, space, comments, and no reference to a schema.
fn respell(node: roxmltree::Node<'_, '_>, random_below: &mut impl FnMut(usize) -> usize, out: &mut String) {
    let space =
        |random_below: &mut dyn FnMut(usize) -> usize| ["", " ", "\n", "\t ", "<!-- a comment -->\n"][random_below(5)];
    let name = node.tag_name().name();
    out.push_str(&format!("<{name}"));
    let mut attributes: Vec<_> = node.attributes().filter(|attribute| attribute.namespace().is_none()).collect();
    while !attributes.is_empty() {
        let attribute = attributes.swap_remove(random_below(attributes.len()));
        let quote = ['"', '\''][random_below(2)];
        let gap = [" ", "\n  ", "\t"][random_below(3)];
        let equals = ["=", " = "][random_below(2)];
        out.push_str(&format!("{gap}{}{equals}{quote}{}{quote}", attribute.name(), attribute.value()));
    }
    let children: Vec<_> = node.children().filter(|child| child.is_element()).collect();
    if children.is_empty() && random_below(2) == 0 {
        out.push_str("/>");
        return;
    }
    out.push('>');
    for child in children {
        out.push_str(space(random_below));
        respell(child, random_below, out);
    }
    out.push_str(space(random_below));
    out.push_str(&format!("</{name}>"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// S1-11: white space, comments, attribute order, quotes and empty tags do not change the hash.
    #[test]
    fn hash_is_unchanged_by_another_spelling(file in 0..=BUNDLED_FILES.len(), random_numbers in proptest::collection::vec(any::<u16>(), 64)) {
        let text = BUNDLED_FILES.get(file).map_or(EVERYTHING, |(_, text)| text);
        let document = roxmltree::Document::parse(text).unwrap();
        let mut at = 0;
        let mut random_below = |bound: usize| { at += 1; usize::from(random_numbers[at % random_numbers.len()]) % bound };
        let mut other = String::from("<!-- other spelling -->\n");
        respell(document.root_element(), &mut random_below, &mut other);
        prop_assert_eq!(hash(text), hash(&other));
    }
}

/// S1-11: every number changes the hash. All numbers are tested, none at random.
#[test]
fn hash_changes_with_every_number() {
    let mut tested = 0;
    for text in all_variants() {
        for (start, end) in numbers_of(&text) {
            let value: f64 = text[start..end].parse().unwrap();
            for difference in [1.0, 2.0] {
                let other = format!("{}{}{}", &text[..start], value + difference, &text[end..]);
                assert_ne!(hash(&text), hash(&other), "{value} + {difference} at {start}:\n{other}");
                tested += 1;
            }
        }
    }
    assert!(400 < tested, "only {tested} numbers were tried");
}

/// S1-11: so does each alternative quality and region mode.
#[test]
fn hash_changes_with_quality_and_region_mode() {
    let all = all_variants();
    let hashes: BTreeSet<RulesetHash> = all.iter().map(|text| hash(text)).collect();
    assert_eq!(hashes.len(), all.len());
}

/// S1-11: so does each word of a closed list.
#[test]
fn hash_changes_with_every_word() {
    let words = [
        ("PartyAggregation=\"max\"", "PartyAggregation=\"min\""),
        ("PartyAggregation=\"mean\" MissingMember", "PartyAggregation=\"sum\" MissingMember"),
        ("MissingMember=\"skip\"", "MissingMember=\"missing\""),
        ("PartyAggregation=\"any\"", "PartyAggregation=\"all\""),
        (" PartyAggregation=\"any\"", ""),
        ("PartyAggregation=\"union\"", "PartyAggregation=\"intersection\""),
        ("Trust=\"client\"", "Trust=\"token\""),
        ("Value=\"true\"", "Value=\"false\""),
        ("duel brawl", "duel"),
        ("Mutual=\"true\"", "Mutual=\"false\""),
        ("Missing=\"refuse\"", "Missing=\"pass\""),
        ("1-1 2-1", "1-1"),
        ("<SameRuleset/>", ""),
        ("\"square_root\"", "\"linear\""),
        ("Missing=\"neutral\"", "Missing=\"worst\""),
        ("Mode=\"lower_is_better\"", "Mode=\"difference\""),
        ("Type=\"skill\"", "Type=\"level\""),
        ("Handles=\"per_searcher\"", "Handles=\"ids\""),
        ("Consent=\"required\"", "Consent=\"assumed\""),
        ("RoleAttribute=\"roles\"", "RoleAttribute=\"maps\""),
        ("Name=\"tank\"", "Name=\"scout\""),
        ("PartyRating=\"median\"", "PartyRating=\"mean\""),
        ("Rounding=\"down\"", "Rounding=\"up\""),
        ("SkipUnchanged=\"false\"", "SkipUnchanged=\"true\""),
        ("\"bronze\"", "\"copper\""),
        ("Rounding=\"floor\"", "Rounding=\"ceiling\""),
        ("Combine=\"larger\"", "Combine=\"smaller\""),
        ("Clock=\"ticket\"", "Clock=\"queue\""),
        ("DivideBy=\"span\"", "DivideBy=\"count\""),
        ("Curve=\"quadratic\"", "Curve=\"linear\""),
        ("\"first_window\"", "\"nearest\""),
        ("\"highest_rated\"", "\"longest_waiting\""),
        ("Silos=\"3 7\"", "Silos=\"any\""),
        ("AllowOtherQueues=\"false\"", "AllowOtherQueues=\"true\""),
        ("PreferSamePartySize=\"true\"", "PreferSamePartySize=\"false\""),
        ("Backfill=\"true\"", "Backfill=\"false\""),
        ("How=\"never\"", "How=\"not_same_team\""),
        ("How=\"not_same_team\"", "How=\"never\""),
        ("Whom=\"recent_opponents\"", "Whom=\"recent_teammates\""),
        ("    <Penalty CooldownMs=\"60000\"/>\n", ""),
        ("    <Offer AfterMs=\"45000\" SetId=\"12\"/>\n", ""),
        ("Rule=\"contain\"", "Rule=\"overlap\""),
        ("Mode=\"maximum_weight\"", "Mode=\"nearest\""),
        ("Mode=\"peer\"", "Mode=\"none\""),
        ("OnDisconnect=\"ignore\"", "OnDisconnect=\"rate\""),
        ("GamesPer=\"opponent\"", "GamesPer=\"match\""),
        ("How=\"prefer_not\" Cost=\"2\"", "How=\"never\""),
    ];
    for (from, to) in words {
        let text = [EVERYTHING, EVERYTHING_OTHER].into_iter().find(|text| text.contains(from)).expect(from);
        // Attributes without effect beside the other word are removed from both.
        let without_effect = match to {
            "Rule=\"overlap\"" => " ReciprocalPercent=\"75\"",
            "Mode=\"nearest\"" => " ExactUpToTickets=\"500\"",
            _ => "",
        };
        let text = text.replace(without_effect, "");
        assert_ne!(hash(&text), hash(&text.replacen(from, to, 1)), "{from}");
    }
}

/// Positions of numbers in attribute values, except those without alternatives: -1; `PartySize`, which is a table key;
/// and `Count` with `maximum_weight`.
fn numbers_of(text: &str) -> Vec<(usize, usize)> {
    let document = roxmltree::Document::parse(text).unwrap();
    let elements = document.descendants().filter(|node| node.is_element());
    let values = elements.flat_map(|node| node.attributes().collect::<Vec<_>>());
    let pairs = text.contains("maximum_weight");
    let values = values.filter(|attribute| attribute.name() != "PartySize" && !(pairs && attribute.name() == "Count"));
    let numbers = values.filter(|attribute| attribute.value().parse::<f64>().is_ok_and(|number| 0.0 <= number));
    let found: Vec<_> =
        numbers.map(|attribute| attribute.range_value()).map(|range| (range.start, range.end)).collect();
    assert!(20 < found.len(), "only {} numbers were found", found.len());
    found
}

/// S2-14: the periods of decay are part of the hash; the default is `all`.
#[test]
fn hash_includes_the_periods_of_decay() {
    let decay = "<Decay EveryMs=\"900000\" Deviation=\"0.5\" MaxDeviation=\"8.333\"/>";
    assert!(EVERYTHING.contains(decay));
    let with =
        |periods: &str| hash(&EVERYTHING.replace(decay, &decay.replace("/>", &format!(" Periods=\"{periods}\"/>"))));
    assert_eq!(with("all"), hash(EVERYTHING));
    assert_ne!(with("played"), hash(EVERYTHING));
}

/// The pool of ratings is part of the hash.
#[test]
fn hash_includes_the_rating_pool() {
    let with = |pool: &str| hash(&EVERYTHING.replace("<Rating ", &format!("<Rating {pool} ")));
    let hashes = BTreeSet::from([with(""), with("Pool=\"a\""), with("Pool=\"b\"")]);
    assert_eq!(hashes.len(), 3);
    assert_eq!(with(""), hash(EVERYTHING));
}

/// The deduction for matching and the form of predictions are part of the hash; their defaults are not.
#[test]
fn hash_includes_the_deduction_for_matching_and_the_prediction() {
    let with = |rating: &str| {
        let rating = format!("<Rating System='plackett_luce' {rating}/>");
        hash(&format!("<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/><Queue/>{rating}</Ruleset>"))
    };
    let changed = [with(""), with("MatchZ='1'"), with("MatchZ='1.5'"), with("Prediction='probit'")];
    assert_eq!(BTreeSet::from(changed).len(), 4, "{changed:?}");
    assert_eq!(with(""), with("MatchZ='0' Prediction='logistic'"));
}

/// S2-4: the draw probability and its threshold are part of the hash.
#[test]
fn hash_includes_the_draw_probability() {
    let teams = "<Teams Count='2' Size='2'/>";
    let duel = |inside: &str| {
        let rest = "<Rating System='trueskill' Mu='1250'/>";
        hash(&format!("<Ruleset Name='a' SetId='1'>{teams}<Queue><Quality>{inside}</Quality></Queue>{rest}</Ruleset>"))
    };
    let all =
        ["<DrawProbability Threshold='0.3'/>", "<DrawProbability Threshold='0.4'/>", "<WinProbability/>"].map(duel);
    assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2], "{all:?}");
}

/// S1-97: satisfaction and its numbers are part of the hash.
#[test]
fn hash_includes_satisfaction() {
    let with = |inside: &str| hash(&EVERYTHING.replace("</Queue>", &format!("{inside}</Queue>")));
    let mut all = [
        with(""),
        with("<Satisfaction LosingStreak='3' Widen='2'/>"),
        with("<Satisfaction LosingStreak='4' Widen='2'/>"),
        with("<Satisfaction LosingStreak='3' Widen='3'/>"),
        with("<Satisfaction LosingStreak='3' ShiftDown='3'/>"),
        with("<Satisfaction LosingStreak='3' Widen='2' ShiftDown='3'/>"),
        with("<Satisfaction AbandonedPercent='3' Widen='2'/>"),
        with("<Satisfaction FeedbackBelow='3' Widen='2'/>"),
        with("<Satisfaction LosingStreak='3' FeedbackBelow='3' Widen='2'/>"),
        with("<Satisfaction FeedbackBelow='3' Widen='2' MinMatches='6'/>"),
    ];
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    let default = with("<Satisfaction FeedbackBelow='3' Widen='2' MinMatches='5'/>");
    assert_eq!(default, with("<Satisfaction FeedbackBelow='3' Widen='2'/>"));
}

/// Rules for both doors count, also if the queue has the same ones.
#[test]
fn hash_covers_avoidance_and_wider_limits_beside_the_queue() {
    let with = |inside: &str| hash(&EVERYTHING.replace("</Ruleset>", &format!("{inside}</Ruleset>")));
    let mut all = [
        with(""),
        with("<Avoid Whom='recent_teammates' How='never' RecentMs='60000'/>"),
        with("<Avoid Whom='recent_teammates' How='never' RecentMs='70000'/>"),
        with("<Avoid Whom='recent_teammates' How='prefer_not' RecentMs='60000' Cost='1' HalfLifeMs='5'/>"),
        with("<Satisfaction LosingStreak='3' WidenLimits='2'/>"),
        with("<Satisfaction LosingStreak='3' WidenLimits='3'/>"),
        with("<Satisfaction LosingStreak='4' WidenLimits='2'/>"),
    ];
    all.sort_unstable();
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
}

/// Display names are not part of the hash; names that clients and responses use are.
#[test]
fn hash_excludes_display_names_only() {
    let (_, duel) = *BUNDLED_FILES.iter().find(|(name, _)| name.ends_with("ranked_duel.xml")).unwrap();
    assert_eq!(hash(duel), hash(&duel.replace("Name=\"Ranked duel\"", "Name=\"Duel\"")));
    assert_eq!(hash(duel), hash(&duel.replace("Unit=\"points\"", "Unit=\"stars\"")));
    assert_ne!(hash(duel), hash(&duel.replace("\"not_begun\"", "\"fresh\"")));
    assert_ne!(hash(duel), hash(&duel.replace("Trust=\"client\"", "Trust=\"game_server\"")));
    assert_ne!(hash(duel), hash(&duel.replace("Missing=\"refuse\"", "Missing=\"pass\"")));
}

/// S1-35: a written default has the same hash as an absent one, and equal steps the same as one long step.
#[test]
fn hash_is_unchanged_by_written_defaults() {
    let short = "<Ruleset Name='a' SetId='1'><ExpansionConfigs><ExpansionConfig Name='x' Type='latency'>\
        <Expansion ExpansionDurationMs='3000' Value='1'/><Expansion ExpansionDurationMs='-1' Value='2'/>\
        </ExpansionConfig></ExpansionConfigs></Ruleset>";
    let cut = "<Expansion ExpansionDurationMs='1000' Value='1'/><Expansion ExpansionDurationMs='2000' Value='1'/>";
    assert_eq!(hash(short), hash(&short.replace("<Expansion ExpansionDurationMs='3000' Value='1'/>", cut)));
    assert_eq!(hash(short), hash(&short.replace("SetId='1'", "SetId='1' Silos='any'")));
    let queue = "<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/><Queue/><ReadyCheck/></Ruleset>";
    let with_defaults = "<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/>\
        <Queue PassIntervalMs='250' PartyRating='max' AllowOtherQueues='true' PreferSamePartySize='false' Backfill='false' \
        TicketTtlMs='60000'><Gate SkipUnchanged='true'/>\
        <Selection Mode='nearest' StartWith='longest_waiting' MaxCandidates='256'/></Queue>\
        <ReadyCheck TimeoutMs='30000'><Penalty CooldownMs='30000'/><Penalty CooldownMs='120000'/>\
        <Penalty CooldownMs='3600000'/></ReadyCheck>\
        <Hosting Mode='none' MaxMatchMs='14400000'/></Ruleset>";
    assert_eq!(hash(queue), hash(with_defaults));
    assert_eq!(hash(queue), hash(&queue.replace("Count='2' Size='1'/>", "><Team Size='1'/><Team Size='1'/></Teams>")));
    let limits = "<Limits MaxResults='50' MaxEvaluated='20000'/></Ruleset>";
    assert_eq!(hash(short), hash(&short.replace("</Ruleset>", limits)));
}

/// A schedule of one penalty has the same hash as `DeclineCooldownMs`.
#[test]
fn hash_of_a_cooldown_equals_a_schedule_of_one() {
    let cooldown =
        "<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/><Queue/><ReadyCheck DeclineCooldownMs='5'/></Ruleset>";
    let schedule = cooldown.replace(" DeclineCooldownMs='5'/>", "><Penalty CooldownMs='5'/></ReadyCheck>");
    assert_eq!(hash(cooldown), hash(&schedule));
}

/// S1-37: a ruleset without new elements keeps the hash that older clients know.
#[test]
fn hash_of_an_older_ruleset_is_unchanged() {
    let (_, duel) = *BUNDLED_FILES.iter().find(|(name, _)| name.ends_with("ranked_duel.xml")).unwrap();
    // One limit has been lowered since.
    let duel = duel.replace("MaxEvaluated=\"20000\"", "MaxEvaluated=\"100000\"");
    // The cooldowns have become the default.
    let duel = duel
        .replace("<ReadyCheck TimeoutMs=\"20000\"/>", "<ReadyCheck TimeoutMs=\"20000\" DeclineCooldownMs=\"60000\"/>");
    assert_eq!(hash(&duel), RulesetHash(1_691_637_559));
}

/// A ruleset that leaves out consent or penalties keeps the hash that it had when their defaults were others. One that states a
/// former default has another hash, since it means something else.
#[test]
fn hash_of_an_older_ruleset_survives_new_defaults() {
    let plain = "<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/><Queue/><ReadyCheck/></Ruleset>";
    assert_eq!(hash(plain), RulesetHash(657_680_936));
    let party = |consent: &str| plain.replace("<Queue/>", &format!("<Queue/><Party Consent='{consent}'/>"));
    let (required, assumed) = (hash(&party("required")), hash(&party("assumed")));
    assert_eq!(required, RulesetHash(3_526_899_653));
    let without_cooldown = hash(&plain.replace("<ReadyCheck/>", "<ReadyCheck DeclineCooldownMs='0'/>"));
    let all: BTreeSet<RulesetHash> = [hash(plain), required, assumed, without_cooldown].into();
    assert_eq!(all.len(), 4);
}

/// The hash is 32 bits of SHA-256 and never 0; shipped files have different hashes.
#[test]
fn hash_differs_between_shipped_files() {
    let hashes: BTreeSet<RulesetHash> = BUNDLED_FILES.iter().map(|(_, text)| hash(text)).collect();
    assert_eq!(hashes.len(), BUNDLED_FILES.len());
    assert!(!hashes.contains(&RulesetHash(0)));
}

/// The source of round trips, and whether limits compare the high end, are part of the hash; the defaults are not.
#[test]
fn hash_depends_on_the_source_of_round_trips() {
    let hash_of = |latency: &str| hash(&format!(r#"<Ruleset Name="a" SetId="1"><Latency {latency}/></Ruleset>"#));
    let different = [
        "",
        r#"Trust="proven""#,
        r#"Source="predicted""#,
        r#"Source="predicted" Cautious="true""#,
        r#"Source="predicted" Trust="claimed""#,
        r#"Source="measured""#,
    ];
    let hashes: BTreeSet<u32> = different.iter().map(|latency| hash_of(latency).0).collect();
    assert_eq!(hashes.len(), different.len());
    assert_eq!(hash_of(r#"Source="distance""#), hash_of(""));
    let spelled = r#"Source="predicted" Predictor="1" Cautious="false" Trust="proven""#;
    assert_eq!(hash_of(spelled), hash_of(r#"Source="predicted""#));
    for problem in [r#"Predictor="1""#, r#"Cautious="true" Source="measured""#, r#"Source="predicted" Predictor="2""#] {
        let text = format!(r#"<Ruleset Name="a" SetId="1"><Latency {problem}/></Ruleset>"#);
        assert!(rules::parse_ruleset("hash.xml", &text).is_err(), "{problem}");
    }
}
