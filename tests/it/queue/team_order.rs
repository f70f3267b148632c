//! Order of the teams of a match: the first one is drawn, or the split decides.

use fireteam_client::pb::{TicketState, TicketStatus};

use crate::support::queue_server::{QueuedParty, SET_ID, duel_ruleset, start_queue_server};

/// Team of the player who entered first, in a duel whose pass draws by this random number.
async fn team_of_the_earlier(ruleset: &str, random: f64) -> u32 {
    let server = start_queue_server(&[ruleset]).await;
    server.clock.set_random_unit(random);
    let mut early = QueuedParty::enter(&server, SET_ID, &[("ana", 21.0)]).await;
    server.clock.advance_ms(1);
    let mut late = QueuedParty::enter(&server, SET_ID, &[("ben", 20.0)]).await;
    let team = |status: TicketStatus| status.found_match.expect("a match").team;
    let team_of_early = team(early.wait_for_state(TicketState::Matched).await);
    assert_eq!(team(late.wait_for_state(TicketState::Matched).await), 1 - team_of_early);
    team_of_early
}

/// S2-13: who is first is drawn where the ruleset says so. Elsewhere the player who has waited longest is always first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_team_is_drawn_where_the_ruleset_says_so() {
    let split = duel_ruleset("");
    let drawn = split.replace("<Teams ", r#"<Teams Order="drawn" "#);
    let mut drawn_teams = [0; 2];
    for number in 0..12 {
        let random = f64::from(number) / 12.0;
        let team = team_of_the_earlier(&drawn, random).await;
        drawn_teams[team as usize] += 1;
        if number < 3 {
            assert_eq!(team_of_the_earlier(&drawn, random).await, team, "the draw follows from the pass's seed");
            assert_eq!(team_of_the_earlier(&split, random).await, 0);
        }
    }
    assert!(drawn_teams.iter().all(|count| *count >= 2), "{drawn_teams:?}");
}
