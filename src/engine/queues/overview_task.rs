//! Computes the overview for operators once a second while a watch is open, and nothing otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::{SetId, TicketId};
use crate::domain::locality::{Locality, snap_to_degree_grid};
use crate::engine::queues::overview::{
    AdvertKindCounts, MAP_CELL_DEGREES, MapCell, OVERVIEW_SETS_MAX, OverviewUpdate, QueueOverview, SetOverview,
    WorldMap,
};
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::snapshot::TICKETS_PER_READ;
use crate::rules::catalog::CatalogState;
use crate::telemetry::label::{MatchStageLabel, TicketStateLabel};

/// Interval between two overviews.
const OVERVIEW_INTERVAL: Duration = Duration::from_secs(1);

/// Number of overviews that share one map. A map reads each waiting ticket and each advertisement.
const OVERVIEWS_PER_MAP: u64 = 10;

/// Publishes overviews while a watch is open, until stopped.
pub(crate) async fn run_overview_task(shared: Arc<SharedState>, shutdown: CancellationToken) {
    let mut map_number = 0;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.overview.wait_for_watch() => {}
        }
        let (mut round, mut places) = (0_u64, PlacesAndCounts::default());
        while shared.overview.is_watched() {
            if round.is_multiple_of(OVERVIEWS_PER_MAP) {
                map_number += 1;
                let read_from = Arc::clone(&shared);
                let read = tokio::task::spawn_blocking(move || read_places(&read_from, map_number));
                // After a panic, which the runtime has caught, the previous map stays.
                places = read.await.unwrap_or(places);
            }
            round += 1;
            let overview = Arc::new(read_overview(&shared, &places.advert_counts_by_set));
            shared.overview.publish(Some(OverviewUpdate { overview, map: Some(Arc::clone(&places.map)) }));
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(OVERVIEW_INTERVAL) => {}
            }
        }
        shared.overview.publish(None);
    }
}

/// Map, and the number of advertisements of each set.
#[derive(Debug, Default)]
struct PlacesAndCounts {
    map: Arc<WorldMap>,
    advert_counts_by_set: BTreeMap<SetId, AdvertKindCounts>,
}

/// Reads the places of all waiting tickets and advertisements.
fn read_places(shared: &SharedState, map_number: u64) -> PlacesAndCounts {
    let mut grid = MapGrid::default();
    let waiting: Vec<TicketId> = {
        let cache = shared.cache.read();
        cache.queues().flat_map(|(_, index)| index.waiting_tickets().map(|(_, id)| id)).collect()
    };
    for ids in waiting.chunks(TICKETS_PER_READ) {
        let cache = shared.cache.read();
        for session in ids.iter().filter_map(|id| cache.ticket(*id)).map(|stored| &stored.ticket.session) {
            let players = u32::from(session.player_count());
            match session.locality {
                Some(place) => grid.cell_of(place).waiting_players += players,
                None => grid.waiting_players_without_place += u64::from(players),
            }
        }
    }
    let mut advert_counts_by_set: BTreeMap<SetId, AdvertKindCounts> = BTreeMap::new();
    shared.adverts.for_each_kind_and_place(|set_id, kind, place| {
        count_advert(advert_counts_by_set.entry(set_id).or_default(), kind);
        match place {
            Some(place) => count_advert(&mut grid.cell_of(place).adverts, kind),
            None => grid.adverts_without_place += 1,
        }
    });
    PlacesAndCounts { map: Arc::new(grid.into_map(map_number)), advert_counts_by_set }
}

fn count_advert(counts: &mut AdvertKindCounts, kind: AdvertisementKind) {
    match kind {
        AdvertisementKind::Session => counts.sessions += 1,
        AdvertisementKind::GameServer => counts.game_servers += 1,
    }
}

/// Cells by their position in the grid.
#[derive(Debug, Default)]
struct MapGrid {
    cells: BTreeMap<(i32, i32), MapCell>,
    waiting_players_without_place: u64,
    adverts_without_place: u64,
}

impl MapGrid {
    fn cell_of(&mut self, place: Locality) -> &mut MapCell {
        let (latitude, longitude) = place.to_degrees();
        // The last row and column include the pole and the date line.
        let below = |degrees: f64, max: f64| degrees.min(max - MAP_CELL_DEGREES / 2.0);
        let (latitude, longitude) =
            snap_to_degree_grid(below(latitude, 90.0), below(longitude, 180.0), MAP_CELL_DEGREES);
        let position = ((latitude / MAP_CELL_DEGREES).floor() as i32, (longitude / MAP_CELL_DEGREES).floor() as i32);
        self.cells.entry(position).or_insert(MapCell { latitude, longitude, ..MapCell::default() })
    }

    fn into_map(self, number: u64) -> WorldMap {
        WorldMap {
            number,
            cells: self.cells.into_values().collect(),
            waiting_players_without_place: self.waiting_players_without_place,
            adverts_without_place: self.adverts_without_place,
        }
    }
}

/// Reads the state of all queues. It depends on the number of queues, not of tickets.
fn read_overview(shared: &SharedState, advert_counts: &BTreeMap<SetId, AdvertKindCounts>) -> QueueOverview {
    let (common, catalog) = (&shared.common, shared.common.rulesets.snapshot());
    let now = common.clock.now();
    let mut sets: BTreeMap<SetId, SetOverview> = BTreeMap::new();
    let mut queues_run_here = 0;
    {
        let (cache, pass_reports) = (shared.cache.read(), shared.pass_reports.lock());
        for (key, index) in cache.queues() {
            let set = sets.entry(key.set_id).or_default();
            let longest_wait_ms = index.waiting_tickets().next().map_or(0, |(entered_at, _)| now.ms_since(entered_at));
            set.longest_wait_ms = set.longest_wait_ms.max(longest_wait_ms);
            if let Some(report) = pass_reports.get(key) {
                queues_run_here += 1;
                set.last_pass_duration_ms = set.last_pass_duration_ms.max(report.last_pass_duration_ms);
            }
        }
        for (set_id, counts) in cache.live_counts_by_set() {
            let set = sets.entry(set_id).or_default();
            let matches = |stage: MatchStageLabel| counts.matches[stage as usize];
            set.waiting_tickets = counts.tickets[TicketStateLabel::Waiting as usize];
            set.waiting_players = counts.waiting_players;
            set.ready_check_matches = matches(MatchStageLabel::ReadyCheck);
            set.placing_matches = matches(MatchStageLabel::Placing) + matches(MatchStageLabel::Confirming);
            set.playing_matches = matches(MatchStageLabel::Playing);
        }
        for set_id in cache.ended_match_counts().sets() {
            sets.entry(set_id).or_default().ended_matches = cache.ended_match_counts().of_set(set_id).to_vec();
        }
    }
    for set_id in catalog.active.keys().chain(catalog.retiring.keys()) {
        sets.entry(*set_id).or_default();
    }
    let is_truncated = OVERVIEW_SETS_MAX < sets.len();
    let sets = sets.into_iter().take(OVERVIEW_SETS_MAX);
    let sets = sets.map(|(set_id, set)| with_ruleset_and_waits(shared, &catalog, advert_counts, (set_id, set)));
    QueueOverview {
        at: now,
        live_servers: shared.overview.other_live_servers.load(Ordering::Relaxed).saturating_add(1),
        feed_lag_ms: common.store_health.as_ref().map(|health| health.age_ms(now)),
        are_commits_failing: common.are_commits_failing(),
        queues_run_here,
        sets: sets.collect(),
        is_truncated,
    }
}

/// Counts of a set with its ruleset's name, its waits and its advertisements.
fn with_ruleset_and_waits(
    shared: &SharedState,
    catalog: &CatalogState,
    advert_counts: &BTreeMap<SetId, AdvertKindCounts>,
    (set_id, set): (SetId, SetOverview),
) -> SetOverview {
    let now = shared.common.clock.now();
    let ruleset = catalog.ruleset_in_force(set_id);
    let waits = shared.wait_estimator.lock();
    SetOverview {
        set_id,
        name: ruleset.map_or_else(Box::default, |ruleset| ruleset.name.as_ref().into()),
        has_queue: ruleset.is_some_and(|ruleset| ruleset.queue.is_some()),
        wait_p50_and_p90_ms: waits.estimate_for_set(set_id, now).map(|estimate| (estimate.p50_ms, estimate.p90_ms)),
        median_quality: waits.median_quality(set_id, now),
        advert_counts: advert_counts.get(&set_id).copied().unwrap_or_default(),
        ..set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_grid_has_the_poles_and_the_date_line_in_its_last_cells() {
        let mut grid = MapGrid::default();
        let places = [(90.0, 180.0), (-90.0, -180.0), (52.5, 13.4), (51.0, 11.0), (0.0, 0.0), (89.9, 179.9)];
        for (latitude, longitude) in places {
            grid.cell_of(Locality::from_degrees(latitude, longitude).unwrap()).waiting_players += 1;
        }
        let map = grid.into_map(1);
        let total: u32 = map.cells.iter().map(|cell| cell.waiting_players).sum();
        assert_eq!(total, places.len() as u32);
        for cell in &map.cells {
            assert!(cell.latitude.abs() <= 87.5 && cell.longitude.abs() <= 177.5, "{cell:?}");
        }
        let berlin = map.cells.iter().find(|cell| (cell.latitude, cell.longitude) == (52.5, 12.5)).unwrap();
        assert_eq!(berlin.waiting_players, 2);
    }
}
