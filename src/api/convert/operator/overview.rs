//! Conversion of overviews for operators who watch.

use crate::api::convert::queue::match_end_reason;
use crate::api::pb;
use crate::engine::queues::overview::{MAP_CELL_DEGREES, MapCell, OverviewUpdate, SetOverview, WorldMap};

/// Version of this server.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Converts an update of a watch.
pub(crate) fn overview_response(update: &OverviewUpdate) -> pb::WatchOverviewResponse {
    let overview = &update.overview;
    pb::WatchOverviewResponse {
        at_unix_ms: overview.at.0,
        server: Some(pb::ServerOverview {
            version: VERSION.to_owned(),
            live_servers: overview.live_servers,
            feed_lag_ms: overview.feed_lag_ms,
            commits_failing: overview.are_commits_failing,
            queues_run_here: overview.queues_run_here,
        }),
        sets: overview.sets.iter().map(set_overview).collect(),
        truncated: overview.is_truncated,
        world_map: update.map.as_deref().map(world_map),
    }
}

fn set_overview(set: &SetOverview) -> pb::SetOverview {
    let ended = set
        .ended_matches
        .iter()
        .map(|&(reason, count)| pb::MatchEndCount { end_reason: match_end_reason(Some(reason)).into(), count });
    pb::SetOverview {
        matchmaking_set_id: set.set_id.0,
        name: set.name.to_string(),
        has_queue: set.has_queue,
        waiting_tickets: set.waiting_tickets,
        waiting_players: set.waiting_players,
        longest_wait_ms: set.longest_wait_ms,
        ready_check_matches: set.ready_check_matches,
        placing_matches: set.placing_matches,
        playing_matches: set.playing_matches,
        wait_p50_ms: set.wait_p50_and_p90_ms.map(|(p50, _)| p50),
        wait_p90_ms: set.wait_p50_and_p90_ms.map(|(_, p90)| p90),
        quality_p50: set.median_quality,
        last_pass_us: (set.last_pass_duration_ms * 1_000.0).round() as u64,
        sessions: set.advert_counts.sessions.into(),
        game_servers: set.advert_counts.game_servers.into(),
        ended_matches: ended.collect(),
    }
}

fn world_map(map: &WorldMap) -> pb::WorldMap {
    let cell = |cell: &MapCell| pb::MapCell {
        latitude: cell.latitude,
        longitude: cell.longitude,
        waiting_players: cell.waiting_players,
        sessions: cell.adverts.sessions,
        game_servers: cell.adverts.game_servers,
    };
    pb::WorldMap {
        cell_degrees: MAP_CELL_DEGREES,
        cells: map.cells.iter().map(cell).collect(),
        waiting_players_without_place: map.waiting_players_without_place,
        advertisements_without_place: map.adverts_without_place,
    }
}
