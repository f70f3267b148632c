//! Search cost: the number of evaluated rows and the response size stay within their limits for any request.

use fireteam::api::response_encoder::CANDIDATES_RESPONSE_BYTES_MAX;
use fireteam::domain::advertisement::ProbeEndpoint;
use fireteam::domain::attribute::ValueOrigin;
use fireteam::domain::id::{SetId, UserKey};
use fireteam::domain::session::{Player, Session};
use fireteam::engine::command::{Caller, PublishOrHeartbeatAdvertCommand};
use fireteam::rules;
use prost::Message;
use tonic::transport::Endpoint;

use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::TestServer;

/// Evaluated rows allowed by the ruleset. There are more rows, and a costly search would evaluate them.
const EVALUATED_ROWS_MAX: u32 = 500;
const HOST_COUNT: usize = 5_000;
/// Steps of each hill climb.
const CLIMB_STEPS: u32 = 150;

const RULESET_XML: &str = r#"<Ruleset Name="Costly" SetId="1" Silos="any">
  <Attributes>
    <Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/>
    <Attribute Name="mode" Type="string" Trust="client"/>
  </Attributes>
  <HardFilters>
    <Within Name="skill" Expansion="skill_wide"/>
  </HardFilters>
  <SoftFilters>
    <SoftFilter Attribute="skill" Weight="1"/>
    <SoftFilter Attribute="latency" Weight="1"/>
  </SoftFilters>
  <ExpansionConfigs>
    <ExpansionConfig Name="skill_wide" Type="skill">
      <Expansion ExpansionDurationMs="-1" Value="3000"/>
    </ExpansionConfig>
  </ExpansionConfigs>
  <Limits MaxResults="200" MaxEvaluated="500"/>
</Ruleset>"#;

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn random_skill(&mut self) -> f64 {
        self.below(3_001) as f64
    }
}

fn player(name: &str, skill: f64) -> generated_client::PlayerData {
    generated_client::PlayerData { user_id: name.into(), skill: Some(skill), ..Default::default() }
}

/// Randomly changes one part of a search; the result is mostly valid.
fn mutated_search(
    search: &generated_client::MatchmakingSearchRequest,
    candidate_ids: &[String],
    rng: &mut SplitMix64,
) -> generated_client::MatchmakingSearchRequest {
    let mut search = search.clone();
    let session = search.session_composition.get_or_insert_default();
    match rng.below(9) {
        0 => session.players.truncate(1 + rng.below(4) as usize),
        1 => session.players.push(player(&format!("another {}", rng.below(1 << 40)), rng.random_skill())),
        2 => session.players.iter_mut().for_each(|player| player.skill = Some(rng.random_skill())),
        3 => session.nat_type = Some(rng.below(4) as i32),
        4 => session.big_party_count = Some(rng.below(4) as i32),
        5 => {
            let regions = (0..rng.below(33)).map(|at| generated_client::RegionLatency {
                region: format!("region {at}"),
                round_trip_ms: rng.below(300) as f32,
            });
            session.region_latencies = regions.collect();
        }
        6 => search.exclude_advertisement_ids = candidate_ids.iter().take(rng.below(257) as usize).cloned().collect(),
        7 => search.exclude_advertisement_ids.clear(),
        _ => session.game_in_progress = Some(rng.below(2) == 0),
    }
    search
}

async fn start_populated_server() -> TestServer {
    let server = RulesetDirectory::with_files(&[("costly.xml", RULESET_XML)]).start_server().await;
    let mut rng = SplitMix64(7);
    let mut waiting = Vec::new();
    for number in 0..HOST_COUNT {
        let user = UserKey::from_name(&format!("host {number}"));
        let players = vec![Player { stated_skill: Some(rng.random_skill()), ..Player::from_user(user) }];
        let update = PublishOrHeartbeatAdvertCommand {
            session: Some(Session {
                players,
                party_sizes: [1].into(),
                offered_seats: 5,
                value_origin: ValueOrigin::GameServer,
                ..Session::default()
            }),
            set_id: Some(SetId(1)),
            idempotency_key: Some(format!("advertisement number {number:020}")),
            // The longest endpoint, which each candidate shows.
            probe: Some(ProbeEndpoint { address: [7; 16], port: 50_000, key: [7; 32].into() }),
            ..PublishOrHeartbeatAdvertCommand::default()
        };
        let game_server = Caller { program_kind: ValueOrigin::GameServer, ..Caller::default() };
        waiting.push(server.app.engine.update_advertisement(&game_server, update).expect("a valid update"));
        if waiting.len() == 2_000 || number + 1 == HOST_COUNT {
            for pending in waiting.drain(..) {
                pending.wait().await.expect("the update is stored");
            }
        }
    }
    server
}

/// SEC-10: without `MaxEvaluated` a search evaluates at most 20,000 rows.
#[test]
fn search_evaluates_at_most_20000_rows_by_default() {
    let limits = r#"<Limits MaxResults="200" MaxEvaluated="500"/>"#;
    for without_max in ["", "<Limits/>", r#"<Limits MaxResults="50"/>"#] {
        let ruleset =
            rules::parse_ruleset("costly.xml", &RULESET_XML.replace(limits, without_max)).expect("a valid ruleset");
        assert_eq!(
            (ruleset.search_limits.max_results, ruleset.search_limits.max_evaluated),
            (50, 20_000),
            "{without_max}"
        );
    }
}

/// SEC-10: hill climbing that keeps every costlier change finds no search above the ruleset's row limit or 64 KiB of
/// response. It reaches the row limit, and a third of the bytes: 200 candidates have no more to tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_cost_stays_within_its_row_and_byte_limits() {
    let server = start_populated_server().await;
    let uri = format!("http://{}", server.app.server.address);
    let mut client = MatchmakingServiceClient::new(Endpoint::from_shared(uri).unwrap().connect().await.unwrap());
    let mut rng = SplitMix64(9);
    let (mut most_rows, mut most_bytes, mut longest) = (0, 0, std::time::Duration::ZERO);
    for wants_rows in [true, false] {
        let mut best = generated_client::MatchmakingSearchRequest {
            session_composition: Some(generated_client::SessionCompositionData {
                players: vec![player("climber", 1_500.0)],
                ..Default::default()
            }),
            matchmaking_set_id: Some(1),
            ..Default::default()
        };
        let (mut best_cost, mut candidate_ids) = (0, Vec::new());
        for _ in 0..CLIMB_STEPS {
            let search = mutated_search(&best, &candidate_ids, &mut rng);
            let started_at = tokio::time::Instant::now();
            let Ok(found) = client.search(search.clone()).await else { continue };
            longest = longest.max(started_at.elapsed());
            let found = found.into_inner();
            let (rows, bytes) = (found.evaluated, found.encoded_len());
            assert!(rows <= EVALUATED_ROWS_MAX, "{rows} rows for {search:?}");
            assert!(bytes <= CANDIDATES_RESPONSE_BYTES_MAX, "{bytes} bytes for {search:?}");
            (most_rows, most_bytes) = (most_rows.max(rows), most_bytes.max(bytes));
            let cost = if wants_rows { rows as usize } else { bytes };
            if best_cost <= cost {
                (best_cost, best) = (cost, search);
                candidate_ids = found.candidates.into_iter().map(|candidate| candidate.advertisement_id).collect();
            }
        }
    }
    println!("at most {most_rows} rows, {most_bytes} bytes; the longest call took {longest:?}");
    assert!(CANDIDATES_RESPONSE_BYTES_MAX / 3 < most_bytes, "{most_bytes} bytes are far below the limit");
    assert_eq!(most_rows, EVALUATED_ROWS_MAX, "the climb reaches the row limit");
}
