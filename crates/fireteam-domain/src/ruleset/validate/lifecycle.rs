//! `<ReadyCheck>` and `<Hosting>`: acceptance of a match, its penalties, and the host of matches.

use crate::limit::RULESET_DURATION_MS_MAX;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::raw::{Diagnostics, RawAttribute, RawElement};
use crate::ruleset::teams::{
    AllocatorOfferSpec, DEFAULT_HOST_LOSS_MS, DEFAULT_OTHER_SIDES_REPORT_MS, DEFAULT_PENALTY_COOLDOWNS_MS,
    GameServerOrder, HOST_CONFIRM_MS_MIN, HostingMode, HostingSpec, MatchesOfferedToAllocators, PlayerDataForHost,
    ReadyCheckSpec, default_host_confirm_ms,
};

/// Default time to respond, milliseconds.
const DEFAULT_READY_CHECK_TIMEOUT_MS: u64 = 30_000;

/// Maximum time to respond, milliseconds.
const READY_CHECK_TIMEOUT_MS_MAX: u64 = 10 * 60 * 1000;

/// Default time without a failed ready check after which penalties restart: one day, milliseconds.
pub(in crate::ruleset) const DEFAULT_PENALTY_RESET_AFTER_MS: u64 = 24 * 60 * 60 * 1000;

/// Maximum time to wait for a game server: one hour, milliseconds.
const ALLOCATION_TIMEOUT_MS_MAX: u64 = 60 * 60 * 1000;

/// Default hosting: no host; players only receive each other's data.
pub(in crate::ruleset) const DEFAULT_HOSTING: HostingSpec = HostingSpec {
    mode: HostingMode::None,
    allocation_timeout_ms: 30_000,
    max_match_ms: 4 * 60 * 60 * 1000,
    confirm_ms: 10_000,
    host_loss_ms: DEFAULT_HOST_LOSS_MS,
    report_window_ms: DEFAULT_OTHER_SIDES_REPORT_MS,
    game_server_order: GameServerOrder::BestScore,
    max_round_trip_ms: None,
    allocator_offers: AllocatorOfferSpec::NO_OFFERS,
    host_data: PlayerDataForHost { includes_attributes: false, includes_ratings: false },
};

/// Bounds of `ReportWindowMs`, milliseconds: ten seconds to 30 minutes.
const REPORT_WINDOW_MS_BOUNDS: (u64, u64) = (10_000, 30 * 60 * 1000);

/// Maximum of `MaxRoundTripMs`: one minute.
const MAX_ROUND_TRIP_MS_MAX: u64 = 60_000;

/// Least and most time for an allocator to answer an offer, milliseconds.
const ALLOCATOR_OFFER_MS_BOUNDS: (u64, u64) = (500, 60_000);

/// Maximum of `ConfirmMs`: one minute.
const CONFIRM_MS_MAX: u64 = 60_000;

/// Minimum of `HostLossMs`: five seconds. Hosts send heartbeats several times in that time.
const HOST_LOSS_MS_MIN: u64 = 5_000;

/// Maximum of `HostLossMs`: one hour. A result may be reported for as long after the host was lost.
const HOST_LOSS_MS_MAX: u64 = 60 * 60 * 1000;

/// Reads `<ReadyCheck>`.
pub(super) fn read_ready_check(element: &RawElement, diagnostics: &Diagnostics) -> ReadyCheckSpec {
    let mut reader = ElementReader::new(element, diagnostics);
    let timeout_ms =
        reader.integer_or("TimeoutMs", 1_000, READY_CHECK_TIMEOUT_MS_MAX, DEFAULT_READY_CHECK_TIMEOUT_MS) as u32;
    let cooldown_ms = reader.optional_integer("DeclineCooldownMs", 0, RULESET_DURATION_MS_MAX).map(|ms| ms as u32);
    let penalties = reader.children_named(&["Penalty"]);
    if let (Some(raw), Some(_)) = (reader.attribute("DeclineCooldownMs"), penalties.first()) {
        let fix = "keep one of them: `DeclineCooldownMs` equals a single <Penalty>";
        reader.report_at(raw.name_span, "<ReadyCheck> has both `DeclineCooldownMs` and <Penalty>", fix);
    }
    let mut penalties_ms = match (penalties.is_empty(), cooldown_ms) {
        (false, _) => read_penalty_schedule(&penalties, diagnostics),
        (true, Some(cooldown_ms)) => vec![cooldown_ms],
        (true, None) => DEFAULT_PENALTY_COOLDOWNS_MS.to_vec(),
    };
    if penalties_ms == [0] {
        penalties_ms.clear();
    }
    let reset_after_ms = reader.integer_or("ResetAfterMs", 1, RULESET_DURATION_MS_MAX, DEFAULT_PENALTY_RESET_AFTER_MS);
    // A schedule of one penalty does not restart.
    if penalties_ms.len() < 2 && element.children.is_empty() {
        reader.report_without_effect(&["ResetAfterMs"], "a single penalty does not restart");
    }
    reader.report_unread_and_missing();
    ReadyCheckSpec { timeout_ms, penalty_cooldowns_ms: penalties_ms.into(), reset_after_ms }
}

/// Reads the penalties, first to last.
fn read_penalty_schedule(penalties: &[&RawElement], diagnostics: &Diagnostics) -> Vec<u32> {
    let mut schedule: Vec<u32> = Vec::new();
    for penalty in penalties {
        let mut reader = ElementReader::new(penalty, diagnostics);
        let ms = reader.required_integer("CooldownMs", 0, RULESET_DURATION_MS_MAX).map(|ms| ms as u32);
        if let (Some(raw), Some(ms), Some(&previous)) = (reader.attribute("CooldownMs"), ms, schedule.last())
            && ms < previous
        {
            reader.report_value(raw, format!("give {previous} or more: cooldowns must not decrease"));
        }
        reader.report_unread_and_missing();
        schedule.extend(ms);
    }
    schedule
}

/// Reads `<Hosting>`.
pub(super) fn read_hosting(element: Option<&RawElement>, diagnostics: &Diagnostics) -> HostingSpec {
    let Some(element) = element else { return DEFAULT_HOSTING };
    let modes = [("game_server", HostingMode::GameServer), ("peer", HostingMode::Peer), ("none", HostingMode::None)];
    let mut reader = ElementReader::new(element, diagnostics);
    let mode = reader.required_keyword("Mode", &modes);
    let allocation_timeout_ms = reader.integer_or(
        "AllocationTimeoutMs",
        1_000,
        ALLOCATION_TIMEOUT_MS_MAX,
        DEFAULT_HOSTING.allocation_timeout_ms.into(),
    ) as u32;
    let max_match_ms = reader.integer_or("MaxMatchMs", 1_000, RULESET_DURATION_MS_MAX, DEFAULT_HOSTING.max_match_ms);
    let choices = [
        ("best_score", GameServerOrder::BestScore),
        ("closest", GameServerOrder::Closest),
        ("emptiest", GameServerOrder::Emptiest),
        ("fullest", GameServerOrder::Fullest),
    ];
    let choice = reader.optional_keyword("Choose", &choices).unwrap_or_default();
    let max_round_trip_ms = reader.optional_integer("MaxRoundTripMs", 1, MAX_ROUND_TRIP_MS_MAX).map(|ms| ms as u32);
    let allocation = read_allocator_offer(&mut reader);
    let (window_min, window_max) = REPORT_WINDOW_MS_BOUNDS;
    let report_window_ms =
        reader.integer_or("ReportWindowMs", window_min, window_max, DEFAULT_OTHER_SIDES_REPORT_MS.into()) as u32;
    if let Some(HostingMode::GameServer | HostingMode::None) = mode {
        reader.report_without_effect(&["ReportWindowMs"], "only players who host report their matches together");
    }
    let confirm_ms =
        reader.optional_integer("ConfirmMs", HOST_CONFIRM_MS_MIN.into(), CONFIRM_MS_MAX).map(|ms| ms as u32);
    let default_host_loss_ms = DEFAULT_HOST_LOSS_MS.into();
    let host_loss_ms = reader.integer_or("HostLossMs", HOST_LOSS_MS_MIN, HOST_LOSS_MS_MAX, default_host_loss_ms) as u32;
    let host_data = read_host_data(&mut reader);
    if let Some(HostingMode::Peer | HostingMode::None) = mode {
        let without_effect = ["AllocationTimeoutMs", "Choose", "MaxRoundTripMs", "Allocate", "OfferMs", "Tell"];
        reader.report_without_effect(&without_effect, "no game server is allocated");
    } else if allocation.mode == MatchesOfferedToAllocators::Never {
        reader.report_without_effect(&["OfferMs"], "matches are offered only with `Allocate`");
    }
    if let Some(HostingMode::None) = mode {
        reader.report_without_effect(&["ConfirmMs", "HostLossMs"], "the match has no host");
    }
    reader.report_unread_and_missing();
    HostingSpec {
        mode: mode.unwrap_or(DEFAULT_HOSTING.mode),
        allocation_timeout_ms,
        max_match_ms,
        confirm_ms: confirm_ms.unwrap_or_else(|| default_host_confirm_ms(allocation_timeout_ms)),
        host_loss_ms,
        game_server_order: choice,
        max_round_trip_ms,
        host_data,
        report_window_ms,
        allocator_offers: allocation,
    }
}

/// Reads the attributes of `<Hosting>` for offers to allocators.
fn read_allocator_offer(reader: &mut ElementReader<'_>) -> AllocatorOfferSpec {
    let modes = [
        ("never", MatchesOfferedToAllocators::Never),
        ("fallback", MatchesOfferedToAllocators::Fallback),
        ("always", MatchesOfferedToAllocators::Always),
    ];
    let mode = reader.optional_keyword("Allocate", &modes).unwrap_or_default();
    let (least_ms, most_ms) = ALLOCATOR_OFFER_MS_BOUNDS;
    let default_ms = AllocatorOfferSpec::NO_OFFERS.offer_ms;
    let offer_ms = reader.integer_or("OfferMs", least_ms, most_ms, default_ms.into()) as u32;
    // Without offers the time has no effect, and does not change the hash.
    if mode == MatchesOfferedToAllocators::Never {
        AllocatorOfferSpec::NO_OFFERS
    } else {
        AllocatorOfferSpec { mode, offer_ms }
    }
}

/// Reads `Tell`: the data that a game server receives with a match, separated by spaces.
fn read_host_data(reader: &mut ElementReader<'_>) -> PlayerDataForHost {
    let mut host_data = PlayerDataForHost::default();
    let Some(raw) = reader.attribute("Tell") else { return host_data };
    for name in raw.value.split_whitespace() {
        match name {
            "attributes" => host_data.includes_attributes = true,
            "ratings" => host_data.includes_ratings = true,
            _ => return report_host_data(reader, raw),
        }
    }
    if host_data == PlayerDataForHost::default() { report_host_data(reader, raw) } else { host_data }
}

fn report_host_data(reader: &ElementReader<'_>, raw: &RawAttribute) -> PlayerDataForHost {
    reader.report_value(raw, "give `attributes`, `ratings` or both, separated by a space");
    PlayerDataForHost::default()
}

const _: () = assert!(RULESET_DURATION_MS_MAX <= u32::MAX as u64);
