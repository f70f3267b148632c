//! Configuration hash: 32 bits of SHA-256 over the meaning of a ruleset. Formatting does not change it.

mod queue;

use sha2::{Digest, Sha256};

use crate::attribute::{Attribute, AttributeValue, PlayerAggregation, SourceField, Trust, ValueType};
use crate::expansion::Expansion;
use crate::id::RulesetHash;
use crate::measure::Measure;
use crate::ruleset::probing::{DEFAULT_PROBING, ProbedPlayers, ProbingSpec};
use crate::ruleset::rating::{
    DecayPeriodFilter, DisconnectPolicy, EqualWidthRatingCategories, LeaderboardAccess, OpponentsPerRatedGame,
    PerformanceDistribution, RatingSpec, RatingSystem, StreakChangeFactor,
};
use crate::ruleset::teams::{
    AllocatorOfferSpec, BotsSpec, DEFAULT_HOST_LOSS_MS, DEFAULT_OTHER_SIDES_REPORT_MS, DEFAULT_PENALTY_COOLDOWNS_MS,
    GameServerOrder, HostingMode, HostingSpec, PlayerDataForHost, ReadyCheckSpec, TeamOrderInMatch, TeamsSpec,
    default_host_confirm_ms,
};
use crate::ruleset::validate::lifecycle::{DEFAULT_HOSTING, DEFAULT_PENALTY_RESET_AFTER_MS};
use crate::ruleset::{
    AdvertisementIdForm, HardFilter, HardRule, InFilterListSource, OverlapChoice, PartyConsentPolicy, Ruleset,
    RulesetSilos, SoftFilter,
};

/// Configuration hash of `ruleset`: the first 32 bits of the SHA-256 of everything that affects matching or statistics. Never 0,
/// which clients send for "none".
///
/// The playlist name, units and the XML text do not count. Names of filters, expansions and attributes do, because
/// answers, overrides and sessions use them.
pub fn ruleset_hash(ruleset: &Ruleset) -> RulesetHash {
    let mut writer = CanonicalWriter(Sha256::new());
    writer.string("fireteam ruleset 1");
    writer.integer(ruleset.set_id.0.into());
    match &ruleset.silos {
        RulesetSilos::Any => writer.string("any"),
        RulesetSilos::Only(silos) => writer.list(silos, |writer, silo| writer.integer(silo.0)),
    }
    writer.list(&ruleset.attributes, write_attribute);
    writer.list(&ruleset.hard_filters, write_hard_filter);
    writer.list(&ruleset.soft_filters, write_soft_filter);
    writer.list(&ruleset.expansions, write_expansion);
    writer.list(ruleset.advertise_chances.percents(), |writer, percent| writer.float(*percent));
    writer.integer(ruleset.search_limits.max_results.into());
    writer.integer(ruleset.search_limits.max_evaluated.into());
    writer.floats(&[
        ruleset.latency_model.intercept_ms,
        ruleset.latency_model.ms_per_1000_km,
        ruleset.answered_percent_for_involved_phase,
    ]);
    writer.option(ruleset.teams.as_ref(), write_teams);
    writer.option(ruleset.queue.as_ref(), queue::write_queue);
    writer.option(ruleset.ready_check.as_ref(), |writer, check| {
        writer.integer(check.timeout_ms.into());
        // The default schedule has the hash of the time when the default was no cooldown.
        let is_default = *check.penalty_cooldowns_ms == DEFAULT_PENALTY_COOLDOWNS_MS;
        let first_ms = check.penalty_cooldowns_ms.first().copied().filter(|_| !is_default);
        writer.integer(first_ms.unwrap_or(0).into());
    });
    writer.option(ruleset.rating.as_ref(), write_rating);
    // Settings added later come last and are written only if they differ from the default: older rulesets keep their
    // hash.
    // `Unstated` means the same as `Required`. It had another meaning before, and keeps the hash of those days.
    match ruleset.consent {
        PartyConsentPolicy::Unstated => {}
        PartyConsentPolicy::Required => writer.string("consent required"),
        PartyConsentPolicy::Assumed => writer.string("consent assumed"),
    }
    ruleset.queue.iter().for_each(|settings| queue::write_queue_additions(&mut writer, settings));
    ruleset.ready_check.iter().for_each(|settings| write_penalty_schedule(&mut writer, settings));
    if ruleset.hosting != DEFAULT_HOSTING {
        write_hosting(&mut writer, &ruleset.hosting);
    }
    write_ruleset_additions(&mut writer, ruleset);
    let digest = writer.0.finalize();
    let first_32_bits = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    RulesetHash(first_32_bits.max(1))
}

/// Writes the settings added later that concern searches and parties, each only if it differs from the default.
fn write_ruleset_additions(writer: &mut CanonicalWriter, ruleset: &Ruleset) {
    if ruleset.clients_per_account != 1 {
        writer.string("clients per account");
        writer.integer(ruleset.clients_per_account.into());
    }
    if ruleset.advertisement_id_form == AdvertisementIdForm::PerSearcher {
        writer.string("handles per searcher");
    }
    write_probing(writer, &ruleset.probing);
    if ruleset.allows_wishes() {
        writer.string("wishes");
        writer.integer(ruleset.allows_latency_wishes.into());
        writer.list(&ruleset.attributes, |writer, attribute| writer.integer(attribute.allows_wishes.into()));
    }
    if let Some(pool) = &ruleset.rating_pool {
        writer.string("rating pool");
        writer.string(pool);
    }
    if !ruleset.avoid.is_empty() {
        writer.string("avoid in searches");
        writer.list(&ruleset.avoid, queue::write_avoidance_rule);
    }
    if let Some(satisfaction) = &ruleset.frustrated_player_limits {
        writer.string("satisfaction of limits");
        queue::write_satisfaction(writer, satisfaction);
        writer.float(satisfaction.limit_widen_factor);
    }
    if !ruleset.statistics_regions.is_empty() {
        writer.string("statistics regions");
        writer.list(&ruleset.statistics_regions, |writer, region| writer.string(region));
    }
}

/// Writes how candidates are probed; defaults are left out.
fn write_probing(writer: &mut CanonicalWriter, probing: &ProbingSpec) {
    let ProbingSpec {
        quick_probe_candidates: quick_probe,
        involved_probe_candidates: involved_probe,
        players,
        figure,
        must_measure,
        region_latency_trust: trust,
        latency_estimate_policy: source,
        filters_by_interval_high_end: is_cautious,
    } = *probing;
    let without_source = ProbingSpec {
        latency_estimate_policy: DEFAULT_PROBING.latency_estimate_policy,
        filters_by_interval_high_end: false,
        ..*probing
    };
    let mut others = without_source;
    if players == ProbedPlayers::Involved {
        // As it was written before there were other settings.
        writer.string("probed players");
        writer.integer(involved_probe.into());
        (others.players, others.involved_probe_candidates) =
            (DEFAULT_PROBING.players, DEFAULT_PROBING.involved_probe_candidates);
    }
    if others != DEFAULT_PROBING {
        writer.string("probing");
        writer.integer(quick_probe.into());
        writer.integer(involved_probe.into());
        writer.variant_name(players);
        writer.variant_name(figure);
        writer.integer(must_measure.into());
        writer.variant_name(trust);
    }
    if *probing != without_source {
        writer.string("latency source");
        writer.variant_name(source);
        writer.integer(is_cautious.into());
    }
}

/// Writes `<Hosting>`; defaults that were added later are left out.
fn write_hosting(writer: &mut CanonicalWriter, hosting: &HostingSpec) {
    let HostingSpec {
        mode,
        allocation_timeout_ms,
        max_match_ms,
        confirm_ms,
        host_loss_ms,
        report_window_ms,
        game_server_order: choice,
        max_round_trip_ms,
        allocator_offers: allocation,
        host_data,
    } = *hosting;
    writer.string("server");
    writer.string(hosting_mode_name(mode));
    writer.integer(allocation_timeout_ms.into());
    writer.integer(max_match_ms);
    if confirm_ms != default_host_confirm_ms(allocation_timeout_ms) || host_loss_ms != DEFAULT_HOST_LOSS_MS {
        writer.string("host liveness");
        writer.integer(confirm_ms.into());
        writer.integer(host_loss_ms.into());
    }
    if report_window_ms != DEFAULT_OTHER_SIDES_REPORT_MS {
        writer.string("report window");
        writer.integer(report_window_ms.into());
    }
    if choice != GameServerOrder::BestScore || max_round_trip_ms.is_some() {
        writer.string("server choice");
        writer.variant_name(choice);
        writer.option(max_round_trip_ms.as_ref(), |writer, ms| writer.integer(u64::from(*ms)));
    }
    if allocation != AllocatorOfferSpec::NO_OFFERS {
        writer.string("allocation");
        writer.variant_name(allocation.mode);
        writer.integer(allocation.offer_ms.into());
    }
    if host_data != PlayerDataForHost::default() {
        writer.string("host data");
        writer.integer(host_data.includes_attributes.into());
        writer.integer(host_data.includes_ratings.into());
    }
}

/// Writes values to the digest unambiguously: different sequences of values give different bytes. Each string and list
/// is preceded by its length, each option by its presence.
struct CanonicalWriter(Sha256);

impl CanonicalWriter {
    fn integer(&mut self, number: u64) {
        self.0.update(number.to_be_bytes());
    }

    fn float(&mut self, number: f64) {
        self.0.update(number.to_bits().to_be_bytes());
    }

    fn floats(&mut self, numbers: &[f64]) {
        self.list(numbers, |writer, number| writer.float(*number));
    }

    fn string(&mut self, text: &str) {
        self.integer(text.len() as u64);
        self.0.update(text.as_bytes());
    }

    /// Writes the `Debug` name of an enum variant. If a variant is renamed, write its old name explicitly, so that hashes
    /// stay the same.
    fn variant_name(&mut self, variant: impl std::fmt::Debug) {
        self.string(&format!("{variant:?}"));
    }

    fn list<T>(&mut self, items: &[T], write_item: impl Fn(&mut Self, &T)) {
        self.integer(items.len() as u64);
        items.iter().for_each(|item| write_item(self, item));
    }

    fn option<T>(&mut self, item: Option<&T>, write_item: impl Fn(&mut Self, &T)) {
        self.integer(item.is_some().into());
        item.into_iter().for_each(|item| write_item(self, item));
    }

    fn index(&mut self, index: usize) {
        self.integer(index as u64);
    }
}

/// Name of a value type in the hash format.
fn value_type_name(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Number => "Number",
        ValueType::String => "Text",
        ValueType::Bool => "Flag",
        ValueType::StringList => "Texts",
    }
}

/// Name of a trust level in the hash format.
fn trust_name(trust: Trust) -> &'static str {
    match trust {
        Trust::Client => "Client",
        Trust::GameServer => "Server",
        Trust::TokenClaim => "Token",
    }
}

/// Name of a hosting mode in the hash format.
fn hosting_mode_name(mode: HostingMode) -> &'static str {
    match mode {
        HostingMode::GameServer => "Advertised",
        HostingMode::Peer => "Peer",
        HostingMode::None => "None",
    }
}

fn write_attribute(writer: &mut CanonicalWriter, attribute: &Attribute) {
    let Attribute {
        name,
        value_type,
        source,
        normalization_range: range,
        unit: _,
        number_aggregation: party_aggregation,
        trust,
        allows_wishes: _,
    } = attribute;
    writer.string(name);
    writer.string(value_type_name(*value_type));
    writer.option(range.as_ref(), |writer, (min, max)| writer.floats(&[*min, *max]));
    writer.variant_name(party_aggregation);
    writer.string(trust_name(*trust));
    // No type of an attribute that might follow has this name.
    if let SourceField::Players(PlayerAggregation { function, missing_member }) = source {
        writer.string("of players");
        writer.variant_name(function);
        writer.variant_name(missing_member);
    }
}

fn write_value(writer: &mut CanonicalWriter, value: &AttributeValue) {
    writer.string(value_type_name(value.value_type()));
    match value {
        AttributeValue::Number(number) => writer.float(*number),
        AttributeValue::String(text) => writer.string(text),
        AttributeValue::Bool(flag) => writer.integer((*flag).into()),
        AttributeValue::StringList(strings) => writer.list(strings, |writer, text| writer.string(text)),
    }
}

fn write_measure(writer: &mut CanonicalWriter, measure: Measure) {
    match measure {
        Measure::AttributeDifference(index) => writer.index(index),
        Measure::Latency => writer.string("latency"),
        Measure::DeltaPing => writer.string("delta_ping"),
        Measure::Distance => writer.string("distance"),
        Measure::PacketLoss => writer.string("packet_loss"),
        Measure::Jitter => writer.string("jitter"),
    }
}

fn write_hard_filter(writer: &mut CanonicalWriter, filter: &HardFilter) {
    writer.string(&filter.name);
    writer.variant_name(filter.missing);
    match &filter.rule {
        HardRule::Equal { attribute, value: constant } => {
            writer.string("equal");
            writer.index(*attribute);
            writer.option(constant.as_ref(), write_value);
        }
        HardRule::NotEqual { attribute, value: constant } => {
            writer.string("not_equal");
            writer.index(*attribute);
            writer.option(constant.as_ref(), write_value);
        }
        HardRule::In { attribute, list, mutual } => {
            writer.string("in");
            writer.index(*attribute);
            match list {
                InFilterListSource::OwnAttribute(index) => {
                    writer.string("attribute");
                    writer.index(*index);
                }
                InFilterListSource::Strings(strings) => {
                    writer.string("texts");
                    writer.list(strings, |writer, text| writer.string(text));
                }
            }
            writer.integer((*mutual).into());
        }
        HardRule::Range { attribute, min, max } => {
            writer.string("range");
            writer.index(*attribute);
            writer.floats(&[*min, *max]);
        }
        HardRule::Overlap { attribute, choose } => {
            writer.string("overlap");
            writer.index(*attribute);
            if let Some(choice) = choose {
                writer.string("choose");
                match choice {
                    OverlapChoice::FirstCommon | OverlapChoice::Drawn => writer.variant_name(choice),
                    OverlapChoice::LeastRecentlyPlayed { recent_ms } => {
                        writer.string("least recently played");
                        writer.integer(*recent_ms);
                    }
                }
            }
        }
        HardRule::Compatible { attribute, pairs } => {
            writer.string("compatible");
            writer.index(*attribute);
            writer.list(pairs, |writer, (smaller, larger)| writer.floats(&[f64::from(*smaller), f64::from(*larger)]));
        }
        HardRule::Within { measure: measured, expansion, reciprocal_percent } => {
            writer.string("within");
            write_measure(writer, *measured);
            writer.index(*expansion);
            writer.float(*reciprocal_percent);
        }
        HardRule::SameRuleset => writer.string("same_hash"),
        HardRule::MaxPacketLoss { percent } => {
            writer.string("max_packet_loss");
            writer.float(*percent);
        }
        HardRule::MaxJitter { ms } => {
            writer.string("max_jitter");
            writer.float(*ms);
        }
    }
}

fn write_soft_filter(writer: &mut CanonicalWriter, filter: &SoftFilter) {
    writer.string(&filter.name);
    write_measure(writer, filter.measure);
    writer.floats(&[filter.weight, filter.min, filter.max]);
    writer.variant_name(filter.mode);
    writer.variant_name(filter.curve);
    writer.variant_name(filter.missing);
}

/// Writes only the steps at which the limit changes: adjacent steps with equal limits count as one.
fn write_expansion(writer: &mut CanonicalWriter, expansion: &Expansion) {
    writer.string(&expansion.name);
    write_measure(writer, expansion.measure);
    let mut steps = expansion.steps().to_vec();
    steps.dedup_by_key(|step| step.limit);
    writer.list(&steps, |writer, step| {
        writer.integer(step.start_ms);
        writer.float(step.limit);
    });
}

fn write_teams(writer: &mut CanonicalWriter, teams: &TeamsSpec) {
    let TeamsSpec {
        team_sizes: sizes,
        max_party_size,
        exact_up_to_team_size: exact_up_to_size,
        roles,
        order,
        offered_roles_attribute: role_attribute,
        bots,
    } = teams;
    match &**sizes {
        [size, rest @ ..] if rest.iter().all(|other| other == size) => {
            let numbers = [sizes.len() as u64, (*size).into(), (*max_party_size).into(), (*exact_up_to_size).into()];
            writer.list(&numbers, |writer, number| writer.integer(*number));
        }
        sizes => {
            writer.string("sizes");
            writer.list(sizes, |writer, size| writer.integer((*size).into()));
            writer.integer((*max_party_size).into());
            writer.integer((*exact_up_to_size).into());
        }
    }
    writer.list(roles, |writer, role| {
        writer.string(&role.name);
        writer.integer(role.per_team.into());
    });
    writer.option(role_attribute.as_ref(), |writer, index| writer.index(*index));
    if *order == TeamOrderInMatch::Drawn {
        writer.string("drawn order");
    }
    if let Some(BotsSpec { after_ms, min_players }) = bots {
        writer.string("bots");
        writer.integer(*after_ms);
        writer.integer((*min_players).into());
    }
}

/// Writes a schedule of several penalties, or one whose reset time is not the default.
fn write_penalty_schedule(writer: &mut CanonicalWriter, check: &ReadyCheckSpec) {
    let ReadyCheckSpec { timeout_ms: _, penalty_cooldowns_ms: penalties_ms, reset_after_ms } = check;
    let has_default_reset = *reset_after_ms == DEFAULT_PENALTY_RESET_AFTER_MS;
    let is_default = has_default_reset && **penalties_ms == DEFAULT_PENALTY_COOLDOWNS_MS;
    if has_default_reset && penalties_ms.is_empty() {
        writer.string("no penalty");
    } else if !is_default && (penalties_ms.len() > 1 || !has_default_reset) {
        writer.string("ladder");
        writer.list(penalties_ms, |writer, ms| writer.integer((*ms).into()));
        writer.integer(*reset_after_ms);
    }
}

fn write_rating(writer: &mut CanonicalWriter, rating: &RatingSpec) {
    writer.string(rating.system.as_str());
    match rating.system {
        RatingSystem::Elo { initial, k, scale } => writer.floats(&[initial, k, scale]),
        RatingSystem::Glicko { initial, deviation, min_deviation, c, period_ms } => {
            writer.floats(&[initial, deviation, min_deviation, c]);
            writer.integer(period_ms);
        }
        RatingSystem::Glicko2 { initial, deviation, volatility, tau, period_ms } => {
            writer.floats(&[initial, deviation, volatility, tau]);
            writer.integer(period_ms);
        }
        RatingSystem::TrueSkill { mu, sigma, beta, tau, draw_percent } => {
            writer.floats(&[mu, sigma, beta, tau, draw_percent]);
        }
        RatingSystem::PlackettLuce { mu, sigma, beta, kappa, tau } => writer.floats(&[mu, sigma, beta, kappa, tau]),
    }
    writer.float(rating.leaderboard_z);
    writer.option(rating.decay.as_ref(), |writer, decay| {
        writer.integer(decay.every_ms);
        writer.floats(&[decay.deviation_per_period, decay.max_deviation]);
    });
    write_rating_additions(writer, rating);
}

/// Writes the settings added to `<Rating>` later. Defaults are not written, so that older rulesets keep their hash.
fn write_rating_additions(writer: &mut CanonicalWriter, rating: &RatingSpec) {
    let RatingSpec {
        system: _,
        leaderboard_z: _,
        match_z,
        decay,
        momentum,
        placement_matches,
        on_disconnect,
        opponents_per_game: games_per,
        leaderboard,
        categories,
        prediction,
    } = rating;
    if decay.is_some_and(|decay| decay.periods == DecayPeriodFilter::Played) {
        writer.string("decay while played");
    }
    if let Some(StreakChangeFactor { after, factor }) = momentum {
        writer.string("momentum");
        writer.integer((*after).into());
        writer.float(*factor);
    }
    if *placement_matches != 0 {
        writer.string("placement");
        writer.integer((*placement_matches).into());
    }
    if *on_disconnect != DisconnectPolicy::Rate {
        writer.string("on disconnect");
        writer.variant_name(on_disconnect);
    }
    if *games_per != OpponentsPerRatedGame::All {
        writer.string("game per");
        writer.variant_name(games_per);
    }
    if *leaderboard == LeaderboardAccess::Public {
        writer.string("public leaderboard");
    }
    if *match_z != 0.0 {
        writer.string("match z");
        writer.float(*match_z);
    }
    if *prediction == PerformanceDistribution::Probit {
        writer.string("probit prediction");
    }
    if let Some(EqualWidthRatingCategories { count, width, from }) = categories {
        writer.string("rating categories");
        writer.integer((*count).into());
        writer.floats(&[*width, *from]);
    }
}
