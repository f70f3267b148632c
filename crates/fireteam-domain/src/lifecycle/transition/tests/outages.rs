//! Deadlines of a match after outages.

use crate::available_time::{MATCH_START_DELAY_BY_OUTAGES_MAX_MS, Outage};

use super::*;

/// Facts with one outage of `ms` milliseconds, a second after the proposal.
fn outage_of(ms: u64) -> Facts {
    let from = START.plus_ms(1_000);
    Facts {
        outages: Some(OutageTimes::new(vec![Outage { from, to: from.plus_ms(ms) }], Vec::new())),
        ..Facts::default()
    }
}

fn end_reason(transition: &Transition) -> Option<MatchEndReason> {
    transition.next_match.as_ref()?.stage.end_reason()
}

/// Case 4: a ready check that an outage interrupted has its whole duration, for acceptances too.
#[test]
fn ready_check_is_extended_by_an_outage() {
    let (rules, facts) = (ready_check_rules(), outage_of(100_000));
    let current = created_match(&rules);
    let last = START.plus_ms(READY_CHECK_MS + 100_000 - 1);
    let deadline_at = |now| apply_event(&rules, &current, MatchEvent::DeadlinePassed, &facts, now);
    assert_eq!(deadline_at(last).result, EventResult::TooEarly);
    assert_eq!(end_reason(&deadline_at(last.plus_ms(1))), Some(MatchEndReason::NotAcceptedInTime));
    let accept_at = |now| apply_event(&rules, &current, response(1, &[11], true), &facts, now).result;
    assert_eq!(accept_at(last), EventResult::Changed);
    assert_eq!(accept_at(last.plus_ms(1)), EventResult::TooLate);
}

/// Silence in a ready check that an outage interrupted is no one's fault, also if the outage was over long before the end: a client
/// may find the server again too late. A decline is still a fault.
#[test]
fn silence_in_an_interrupted_ready_check_is_not_penalized() {
    let (rules, facts) = (ready_check_rules(), outage_of(100_000));
    let current = created_match(&rules);
    let ended = START.plus_ms(READY_CHECK_MS + 100_000);
    let silent = apply_event(&rules, &current, MatchEvent::DeadlinePassed, &facts, ended);
    assert_eq!((end_reason(&silent), silent.penalized_users), (Some(MatchEndReason::NotAcceptedInTime), vec![]));
    let declined = apply_event(&rules, &current, response(1, &[11], false), &facts, UnixMs(ended.0 - 1));
    assert_eq!(declined.penalized_users, [user_key(11)]);
    let before = UnixMs(START.0 - 1);
    let over = OutageTimes::new(vec![Outage { from: UnixMs(before.0 - 3_000), to: before }], Vec::new());
    let over = Facts { outages: Some(over), ..Facts::default() };
    let silent = apply_event(&rules, &current, MatchEvent::DeadlinePassed, &over, START.plus_ms(READY_CHECK_MS));
    assert_eq!(silent.penalized_users, [user_key(11), user_key(12), user_key(21)], "it was over before");
    let died = OutageTimes::new(Vec::new(), vec![START.plus_ms(1_000)]);
    let died = Facts { outages: Some(died), ..Facts::default() };
    let ended = START.plus_ms(2 * READY_CHECK_MS);
    let silent = apply_event(&rules, &current, MatchEvent::DeadlinePassed, &died, ended);
    assert_eq!((end_reason(&silent), silent.penalized_users), (Some(MatchEndReason::NotAcceptedInTime), vec![]));
}

/// A player who has waited for half of the time for a game server leaves freely, also if an outage took part of it.
#[test]
fn outage_counts_for_the_half_of_the_wait_after_which_leaving_is_free() {
    let rules = ready_check_rules();
    let [one, two] = all_accept();
    let (placing, _) = apply_all(&rules, &[one, two]);
    let leave = MatchEvent::PlayersLeft { ticket_id: ticket_id(2), users: Vec::new(), left_by: None };
    let half_wait = START.plus_ms(2_000 + ALLOCATION_TIMEOUT_MS / 2);
    let facts = outage_of(50_000);
    for (now, penalized) in [(UnixMs(half_wait.0 - 1), vec![user_key(21)]), (half_wait, vec![])] {
        let transition = apply_event(&rules, &placing, leave.clone(), &facts, now);
        assert_eq!(transition.penalized_users, penalized, "at {now:?}");
    }
}

/// Held up for ten minutes, a match is cancelled before play, and all its tickets wait again. A match in play goes on.
#[test]
fn match_before_play_is_cancelled_after_ten_minutes_of_outages() {
    let rules = ready_check_rules();
    let now = START.plus_ms(MATCH_START_DELAY_BY_OUTAGES_MAX_MS + 2_000);
    let current = created_match(&rules);
    let deadline_with = |facts: &Facts| apply_event(&rules, &current, MatchEvent::DeadlinePassed, facts, now);
    assert_eq!(deadline_with(&outage_of(MATCH_START_DELAY_BY_OUTAGES_MAX_MS - 1)).result, EventResult::TooEarly);
    let cancelled = deadline_with(&outage_of(MATCH_START_DELAY_BY_OUTAGES_MAX_MS));
    assert_eq!(end_reason(&cancelled), Some(MatchEndReason::Cancelled));
    let requeued = vec![(ticket_id(1), TicketFate::Requeued), (ticket_id(2), TicketFate::Requeued)];
    assert_eq!((cancelled.ticket_fates, cancelled.penalized_users), (requeued, Vec::new()));

    let unhosted = lifecycle_rules(None, HostingMode::None);
    let playing = created_match(&unhosted);
    let timed_out = |ms| {
        let now = START.plus_ms(MAX_MATCH_MS + ms);
        apply_event(
            &unhosted,
            &playing,
            MatchEvent::DeadlinePassed,
            &outage_of(MATCH_START_DELAY_BY_OUTAGES_MAX_MS),
            now,
        )
    };
    assert_eq!(timed_out(MATCH_START_DELAY_BY_OUTAGES_MAX_MS - 1).result, EventResult::TooEarly);
    assert_eq!(end_reason(&timed_out(MATCH_START_DELAY_BY_OUTAGES_MAX_MS)), Some(MatchEndReason::TimedOut));
}

/// The wait for a game server, its confirmation and the silence of a host are extended too.
#[test]
fn deadlines_of_hosts_are_extended_by_an_outage() {
    let mut rules = lifecycle_rules(None, HostingMode::GameServer);
    rules.hosts_confirm = true;
    let facts = outage_of(50_000);
    let apply = |current: &Match, event, now| apply_event(&rules, current, event, &facts, now);
    let placing = created_match(&rules);
    let late = START.plus_ms(ALLOCATION_TIMEOUT_MS + 50_000);
    assert_eq!(apply(&placing, MatchEvent::DeadlinePassed, UnixMs(late.0 - 1)).result, EventResult::TooEarly);
    assert_eq!(end_reason(&apply(&placing, MatchEvent::DeadlinePassed, late)), Some(MatchEndReason::NoServer));
    let confirming = apply(&placing, MatchEvent::ServerFound(game_server(7)), START).next_match.unwrap();
    let late = START.plus_ms(CONFIRM_MS + 50_000);
    assert_eq!(apply(&confirming, MatchEvent::DeadlinePassed, UnixMs(late.0 - 1)).result, EventResult::TooEarly);
    assert_eq!(stage_name(&apply(&confirming, MatchEvent::DeadlinePassed, late).next_match.unwrap()), "placing");
    let playing = apply(&confirming, heard(START), START).next_match.unwrap();
    let late = START.plus_ms(HOST_LOSS_MS + 50_000);
    assert_eq!(apply(&playing, MatchEvent::DeadlinePassed, UnixMs(late.0 - 1)).result, EventResult::TooEarly);
    assert_eq!(end_reason(&apply(&playing, MatchEvent::DeadlinePassed, late)), Some(MatchEndReason::HostLost));
}
