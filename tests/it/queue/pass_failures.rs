//! Files with the inputs of failed passes: they run the same pass again, name no account, and do not fill the disk.

use std::sync::Arc;

use fireteam::domain::id::{SetId, SiloId, TicketId, UserKey};
use fireteam::domain::queue::avoidance::{PastMatches, PlayedPair};
use fireteam::domain::queue::gate::GateCounts;
use fireteam::domain::queue::pass::{PassInput, run_pass};
use fireteam::domain::queue::prepared_ticket::PreparedTicket;
use fireteam::domain::queue::ticket::{PlayerRating, Ticket};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::session::{Player, Session};
use fireteam::domain::time::UnixMs;
use fireteam::rules::parse::parse_ruleset;
use fireteam::store::pass_failure::{PASS_FAILURE_FILES_MAX, PassFailureFolder, PassRecord};

use crate::support::queue_server::duel_ruleset;

const NOW: UnixMs = UnixMs(1_700_000_000_000);

fn ruleset() -> Ruleset {
    let avoid = r#"<Avoid Whom="blocked" How="never"/>
      <Avoid Whom="recent_opponents" How="never" RecentMs="600000"/></Queue>"#;
    parse_ruleset("duel.xml", &duel_ruleset("").replace("</Queue>", avoid)).expect("a valid ruleset")
}

/// User of ticket `number`. Keys are digests, so their order is not that of the numbers.
fn user(number: u32) -> UserKey {
    UserKey::from_name(&format!("account-{number}"))
}

fn ticket(number: u32) -> Arc<Ticket> {
    let player =
        Player { client_key: user(number + 1_000), stated_skill: Some(20.0), ..Player::from_user(user(number)) };
    Arc::new(Ticket {
        id: TicketId::from_bytes(u128::from(number + 7).to_le_bytes()),
        set_id: SetId(11),
        subject: Some(user(number)),
        entered_at: UnixMs(NOW.0 - u64::from(number % 5) * 1_000),
        session: Session {
            silo: SiloId(3),
            party_sizes: [1].into(),
            players: vec![player],
            attributes: vec![("nickname".into(), fireteam::domain::attribute::AttributeValue::String("ann".into()))],
            ..Session::default()
        },
        player_ratings: vec![PlayerRating { rating: 20.0 + f64::from(number % 7) * 0.3, deviation: 0.0 }],
        rating_digest_key: None,
        exact_round_trips_ms: None,
        blocked_users: if number.is_multiple_of(3) { vec![user(number + 1), user(500)] } else { Vec::new() },
        excludes_other_tickets: true,
        self_answering_users: Vec::new(),
    })
}

/// Calls `run` with the input of a pass over `count` tickets, of which some avoid each other.
fn with_input<T>(ruleset: &Ruleset, count: u32, run: impl FnOnce(&PassInput<'_>) -> T) -> T {
    let (queue, teams) = (ruleset.queue.as_ref().expect("a queue"), ruleset.teams.as_ref().expect("teams"));
    let mut tickets: Vec<PreparedTicket> =
        (0..count).map(|number| PreparedTicket::new(ruleset, queue, ticket(number), None)).collect();
    tickets.iter_mut().for_each(|ticket| {
        ticket.ticket = {
            let mut sorted = (*ticket.ticket).clone();
            sorted.blocked_users.sort_unstable();
            Arc::new(sorted)
        }
    });
    let met = |number: u32| PlayedPair {
        user: user(number),
        other_user: user(number + 2),
        same_team: false,
        started_at: UnixMs(NOW.0 - 60_000),
    };
    run(&PassInput {
        ruleset,
        queue,
        teams,
        tickets: &tickets.iter().collect::<Vec<_>>(),
        open_sessions: &[],
        past_matches: &PastMatches::from_pairs_keeping_latest((0..count).map(met)),
        gate_counts: GateCounts { connected_players: 40, active_matches: 2 },
        now: NOW,
        rng_seed: 99,
        max_pair_checks: 1_000_000,
    })
}

/// R20: the file of a failed pass runs the same pass: same proposals, same refusals.
#[test]
fn pass_failure_file_runs_the_same_pass_again() {
    let folder = tempfile::tempdir().unwrap();
    let failures = PassFailureFolder::new(Some(folder.path().join("failed passes")));
    let ruleset = ruleset();
    let (file, expected) = with_input(&ruleset, 41, |input| {
        (failures.save(input, SiloId(3), "index out of bounds").unwrap().expect("a file"), run_pass(input))
    });
    assert!(expected.proposals.len() > 10, "the pass is no trivial one");
    let text = std::fs::read_to_string(file).unwrap();
    let record = PassRecord::decode(&text).unwrap();
    assert_eq!(record.panic, "index out of bounds");
    let replayed_ruleset = parse_ruleset("replay.xml", &record.ruleset_xml).unwrap();
    assert_eq!(record.call_with_pass_input(&replayed_ruleset, run_pass).unwrap(), expected);
    for secret in [user(1), user(2), user(500), user(1_001)] {
        assert!(!text.contains(std::str::from_utf8(&secret.to_hex()).unwrap()), "a user key is in the file");
    }
    assert!(!text.contains("account") && !text.contains("nickname"), "a name is in the file");
}

/// R20: the folder keeps the newest files, at most `PASS_FAILURE_FILES_MAX`, and nothing else in it is deleted.
#[test]
fn pass_failure_folder_keeps_a_limited_number_of_files() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "kept").unwrap();
    let failures = PassFailureFolder::new(Some(folder.path().to_owned()));
    let ruleset = ruleset();
    let mut last = None;
    for number in 0..PASS_FAILURE_FILES_MAX as u64 + 3 {
        last = with_input(&ruleset, 2, |input| {
            failures.save(&PassInput { now: UnixMs(NOW.0 + number), ..*input }, SiloId(3), "p").unwrap()
        });
    }
    let names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(names.len(), PASS_FAILURE_FILES_MAX + 1, "{names:?}");
    assert!(last.expect("a file").exists() && names.iter().any(|name| name == "notes.txt"));
    assert_eq!(
        with_input(&ruleset, 2, |input| PassFailureFolder::default().save(input, SiloId(3), "p")).unwrap(),
        None
    );
}
