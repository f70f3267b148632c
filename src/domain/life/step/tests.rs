//! Every event at every stage, and what becomes of those who were in a match.

mod walk;

use super::*;
use crate::domain::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, SiloId};
use crate::domain::ruleset::teams::ServerSpec;

const DEADLINE: u64 = 30_000;
const WAIT: u64 = 20_000;
const PLAY: u64 = 3_600_000;
/// When the matches of these tests are proposed.
const START: UnixMs = UnixMs(1_000_000);

fn rules(ready_check_ms: Option<u32>, mode: ServerMode) -> LifeRules {
    let server = ServerSpec { mode, wait_ms: WAIT as u32, play_max_ms: PLAY };
    LifeRules { ready_check_ms, server, meetings_ms: 0 }
}

fn checked() -> LifeRules {
    rules(Some(DEADLINE as u32), ServerMode::Advertised)
}

fn ticket(n: u8) -> TicketId {
    TicketId::from_bytes([n; 16])
}

fn user(n: u8) -> UserKey {
    UserKey::from_bytes([n; 16])
}

/// The client of that user.
fn client(n: u8) -> UserKey {
    UserKey::from_bytes([n | 0x80; 16])
}

fn member(n: u8, entered: u64, users: &[u8]) -> Member {
    let seat = |n: &u8| Seat { user: user(*n), player: client(*n), role: None, answer: None };
    Member { ticket: ticket(n), entered: UnixMs(entered), team: 0, players: users.iter().map(seat).collect() }
}

fn fresh(members: Vec<Member>) -> Fresh {
    Fresh {
        id: MatchId::from_bytes([9; 16]),
        set_id: SetId(1),
        silo: SiloId(1),
        hash: RulesetHash(1),
        members,
        quality: 0.0,
        region: None,
        backfills: None,
    }
}

/// Ticket 1 with users 11 and 12, ticket 2 with user 21.
fn two() -> Fresh {
    fresh(vec![member(1, 500, &[11, 12]), member(2, 400, &[21])])
}

fn never(_: TicketId) -> bool {
    false
}

fn begun(rules: &LifeRules) -> Match {
    begin(rules, two(), &never, START).next.unwrap()
}

fn says(n: u8, users: &[u8], accept: bool) -> Event {
    Event::Answered { ticket: ticket(n), users: users.iter().map(|&n| user(n)).collect(), accept }
}

fn server(n: u8) -> Place {
    Place::Server {
        advertisement: AdvertisementId::from_bytes([n; 16]),
        reservation: ReservationId::from_bytes([n; 16]),
        connect_data: vec![n],
    }
}

fn seats_of(n: u8) -> Effect {
    let (advertisement, reservation) = (AdvertisementId::from_bytes([n; 16]), ReservationId::from_bytes([n; 16]));
    Effect::GiveBack { advertisement, reservation }
}

/// Plays events, a second apart, every one of which must change the match.
fn after(rules: &LifeRules, events: &[Event]) -> (Match, Step) {
    let (mut play, mut last, mut now) = (begun(rules), None, START);
    for event in events {
        now = now.after(1_000);
        let stepped = step(rules, &play, event.clone(), &never, now);
        play = stepped.next.clone().unwrap_or_else(|| panic!("{event:?} is {:?}", stepped.heard));
        last = Some(stepped);
    }
    (play, last.unwrap())
}

fn all_agree() -> [Event; 2] {
    [says(1, &[11, 12], true), says(2, &[21], true)]
}

fn stage(play: &Match) -> String {
    match &play.stage {
        Stage::ReadyCheck { .. } => "ready".into(),
        Stage::Placing { .. } => "placing".into(),
        Stage::Playing { .. } => "playing".into(),
        Stage::Over { outcome, .. } => format!("{outcome:?}"),
    }
}

/// S0-20, S0-21: every event at every stage. Columns: a ready check to which ticket 1 has agreed, placing, playing on
/// server 7, and over: reported, and cancelled. A cell is the stage that follows, or why nothing does.
#[test]
fn every_event_at_every_stage() {
    let (early, due) = (START.after(5_000), START.after(2 * PLAY));
    let (left, sent_away) = (Ending::Left, Ending::Dismissed);
    let gone = |n, how| Event::Gone { ticket: ticket(n), how };
    let told = |by: Option<u8>| Event::Reported { by: by.map(user) };
    let found = |n| Event::ServerFound(server(n));
    let (failed, cancelled) = ("ServerFailed", "Cancelled");
    #[rustfmt::skip]
    let table = [
        ("agrees",          early, says(2, &[21], true),     ["placing", "Known", "Known", "Known", "Known"]),
        ("agrees again",    early, says(1, &[11], true),     ["Known"; 5]),
        ("agrees late",     due,   says(2, &[21], true),     ["TooLate", "Known", "Known", "Known", "Known"]),
        ("declines",        early, says(2, &[21], false),    ["Declined", "NotNow", "NotNow", "NotNow", "NotNow"]),
        ("changes to no",   early, says(1, &[12], false),    ["Declined", "NotNow", "NotNow", "NotNow", "NotNow"]),
        ("declines late",   due,   says(2, &[21], false),    ["TooLate", "NotNow", "NotNow", "NotNow", "NotNow"]),
        ("strange ticket",  early, says(3, &[21], true),     ["Stranger"; 5]),
        ("strange user",    early, says(1, &[11, 21], true), ["Stranger"; 5]),
        ("nobody answers",  early, says(1, &[], true),       ["Stranger"; 5]),
        ("time, early",     early, Event::DeadlinePassed,    ["TooEarly", "TooEarly", "TooEarly", "NotNow", "NotNow"]),
        ("time",            due,   Event::DeadlinePassed,    ["Unanswered", "NoServer", "Lapsed", "NotNow", "NotNow"]),
        ("this server",     early, found(7),                 ["NotNow", "playing", "Known", "NotNow", "NotNow"]),
        ("another server",  early, found(8),                 ["NotNow", "playing", "NotNow", "NotNow", "NotNow"]),
        ("server fails",    early, Event::ServerFailed,      ["NotNow", failed, failed, "NotNow", "NotNow"]),
        ("reported",        early, told(None),               ["NotNow", "NotNow", "Played", "Known", "NotNow"]),
        ("player reports",  early, told(Some(12)),           ["NotNow", "NotNow", "Played", "Known", "NotNow"]),
        ("other reports",   early, told(Some(99)),           ["Stranger"; 5]),
        ("cancelled",       early, Event::Cancelled,         [cancelled, cancelled, cancelled, "NotNow", "Known"]),
        ("leaves",          early, gone(1, left),            ["Declined", "Declined", "NotNow", "NotNow", "NotNow"]),
        ("is dismissed",    early, gone(1, sent_away),       ["Cancelled", "Cancelled", "NotNow", "NotNow", "NotNow"]),
        ("stranger leaves", early, gone(3, left),            ["Stranger"; 5]),
    ];
    let [one, two] = all_agree();
    let found = found(7);
    let before = [
        after(&checked(), std::slice::from_ref(&one)).0,
        after(&checked(), &[one.clone(), two.clone()]).0,
        after(&checked(), &[one.clone(), two.clone(), found.clone()]).0,
        after(&checked(), &[one.clone(), two.clone(), found.clone(), Event::Reported { by: None }]).0,
        after(&checked(), &[one, two, Event::Cancelled]).0,
    ];
    for (name, now, event, expected) in table {
        for (play, expected) in before.iter().zip(expected) {
            let step = step(&checked(), play, event.clone(), &never, now);
            let is = step.next.as_ref().map_or(format!("{:?}", step.heard), stage);
            assert_eq!(is, expected, "{name} while {}", stage(play));
            assert_eq!(step.next.is_some(), step.heard == Heard::Changed, "{name}");
            let over = step.next.iter().any(|next| matches!(next.stage, Stage::Over { .. }));
            assert_eq!(step.fates.len(), if over { 2 } else { 0 }, "{name}: each ticket's fate when it is over");
            assert!(step.next.is_none_or(|next| next.edition == play.edition + 1), "{name}");
        }
    }
}

/// S0-20: partial answers are kept, and the last one lets the match go on.
#[test]
fn answers_come_one_by_one_and_the_last_lets_it_go_on() {
    let (play, step) = after(&checked(), &[says(1, &[11], true)]);
    let answers: Vec<Option<bool>> = play.members.iter().flat_map(|it| &it.players).map(|seat| seat.answer).collect();
    assert_eq!(answers, [Some(true), None, None]);
    assert_eq!((step.effects, play.edition), (vec![], 2));
    let (play, step) = after(&checked(), &[says(1, &[11], true), says(1, &[11, 12], true), says(2, &[21], true)]);
    assert_eq!(play.stage, Stage::Placing { deadline: START.after(3_000 + WAIT) });
    assert_eq!(step.effects, [Effect::WantServer]);
}

/// S0-21, B-35: who declines ends and is punished; those who agreed and those who had not answered yet go back; a party
/// is not split by it.
#[test]
fn a_decline_ends_the_decliner_and_puts_the_others_back() {
    let (play, step) = after(&checked(), &[says(1, &[12], false)]);
    assert_eq!(step.fates, [(ticket(1), Fate::Ends(Ending::Declined)), (ticket(2), Fate::Returns)]);
    assert_eq!(step.punished, [user(12)], "and not the friend, who said nothing");
    assert_eq!(
        play.stage,
        Stage::Over {
            outcome: Outcome::Declined,
            began: None,
            place: None,
            forget_at: START.after(1_000 + REMEMBERED_MS)
        }
    );
    let members = begun(&checked()).members;
    let entered: Vec<(TicketId, UnixMs)> = play.members.iter().map(|it| (it.ticket, it.entered)).collect();
    assert_eq!(entered, members.iter().map(|it| (it.ticket, it.entered)).collect::<Vec<_>>());
}

/// S0-21, B-35: at the deadline the silent are absent and punished; those who agreed go back.
#[test]
fn the_silent_are_absent_when_the_deadline_comes() {
    let (play, _) = after(&checked(), &[says(1, &[11], true), says(2, &[21], true)]);
    let step = step(&checked(), &play, Event::DeadlinePassed, &never, START.after(DEADLINE));
    assert_eq!(step.fates, [(ticket(1), Fate::Ends(Ending::Absent)), (ticket(2), Fate::Returns)]);
    assert_eq!(step.punished, [user(12)]);
}

#[test]
fn the_deadline_is_the_first_moment_that_is_too_late() {
    let play = begun(&checked());
    let at = |ms, event| step(&checked(), &play, event, &never, START.after(ms)).heard;
    assert_eq!(at(DEADLINE - 1, says(1, &[11], true)), Heard::Changed);
    assert_eq!(at(DEADLINE, says(1, &[11], true)), Heard::TooLate);
    assert_eq!(at(DEADLINE - 1, Event::DeadlinePassed), Heard::TooEarly);
    assert_eq!(at(DEADLINE, Event::DeadlinePassed), Heard::Changed);
}

/// S0-21: nobody is punished for a server's fault, and all wait on.
#[test]
fn without_a_server_all_go_back_and_nobody_is_punished() {
    let [one, two] = all_agree();
    let (play, _) = after(&checked(), &[one.clone(), two.clone()]);
    let late = step(&checked(), &play, Event::DeadlinePassed, &never, START.after(2_000 + WAIT));
    let (_, failed) = after(&checked(), &[one.clone(), two.clone(), Event::ServerFailed]);
    let (_, gave_up) = after(&checked(), &[one, two, Event::ServerFound(server(7)), Event::ServerFailed]);
    for step in [&late, &failed, &gave_up] {
        assert_eq!(step.fates, [(ticket(1), Fate::Returns), (ticket(2), Fate::Returns)]);
        assert_eq!(step.punished, []);
        assert!(matches!(step.next.as_ref().unwrap().stage, Stage::Over { began: None, .. }));
    }
    assert_eq!((late.effects, failed.effects, gave_up.effects), (vec![], vec![], vec![seats_of(7)]));
}

#[test]
fn who_leaves_before_play_ends_with_the_whole_party_and_the_others_go_back() {
    let [one, two] = all_agree();
    let gone = |how| Event::Gone { ticket: ticket(1), how };
    let (_, left) = after(&checked(), &[one.clone(), two.clone(), gone(Ending::Left)]);
    assert_eq!(left.fates, [(ticket(1), Fate::Ends(Ending::Left)), (ticket(2), Fate::Returns)]);
    assert_eq!(left.punished, [user(11), user(12)]);
    let (_, dismissed) = after(&checked(), &[one, two, gone(Ending::Dismissed)]);
    assert_eq!(dismissed.fates, [(ticket(1), Fate::Ends(Ending::Dismissed)), (ticket(2), Fate::Returns)]);
    assert_eq!(dismissed.punished, [], "whoever is sent away has done nothing");
}

#[test]
fn seats_that_nobody_wants_any_more_are_given_back() {
    let [one, two] = all_agree();
    let (play, _) = after(&checked(), &[one.clone(), two.clone(), Event::ServerFound(server(7))]);
    let second = step(&checked(), &play, Event::ServerFound(server(8)), &never, START.after(9_000));
    assert_eq!((second.heard, second.effects), (Heard::NotNow, vec![seats_of(8)]));
    let again = step(&checked(), &play, Event::ServerFound(server(7)), &never, START.after(9_000));
    assert_eq!((again.heard, again.effects), (Heard::Known, vec![]), "these are the ones it plays on");
    let (over, _) = after(&checked(), &[one, two, Event::Cancelled]);
    let late = step(&checked(), &over, Event::ServerFound(server(8)), &never, START.after(9_000));
    assert_eq!(late.effects, [seats_of(8)]);
}

#[test]
fn play_ends_by_report_or_when_its_time_is_up_and_is_remembered_for_as_long_as_meetings_count() {
    let rules = LifeRules { meetings_ms: 10 * REMEMBERED_MS, ..checked() };
    let [one, two] = all_agree();
    let (play, begins) = after(&rules, &[one, two, Event::ServerFound(server(7))]);
    let began = START.after(3_000);
    assert_eq!(begins.effects, [Effect::Begin]);
    assert_eq!(play.stage, Stage::Playing { place: server(7), began, until: began.after(PLAY) });
    let reported = step(&rules, &play, Event::Reported { by: None }, &never, START.after(9_000));
    let lapsed = step(&rules, &play, Event::DeadlinePassed, &never, began.after(PLAY));
    for (step, outcome) in [(reported, Outcome::Played), (lapsed, Outcome::Lapsed)] {
        let played = Fate::Ends(Ending::Played);
        assert_eq!(step.fates, [(ticket(1), played), (ticket(2), played)]);
        assert_eq!((step.punished, step.effects), (vec![], vec![seats_of(7)]));
        let forget_at = began.after(10 * REMEMBERED_MS);
        assert_eq!(
            step.next.unwrap().stage,
            Stage::Over { outcome, began: Some(began), place: Some(server(7)), forget_at }
        );
    }
}

#[test]
fn without_a_ready_check_a_match_begins_with_its_place() {
    let want = begin(&rules(None, ServerMode::Advertised), two(), &never, START);
    assert_eq!(want.effects, [Effect::WantServer]);
    assert_eq!(want.next.unwrap().stage, Stage::Placing { deadline: START.after(WAIT) });
    let play = begin(&rules(None, ServerMode::None), two(), &never, START);
    assert_eq!((play.heard, play.effects, play.fates), (Heard::Changed, vec![Effect::Begin], vec![]));
    let play = play.next.unwrap();
    assert_eq!((play.edition, play.proposed), (1, START));
    assert_eq!(play.stage, Stage::Playing { place: Place::Nowhere, began: START, until: START.after(PLAY) });
}

#[test]
fn who_joins_a_session_waits_for_its_seats_whoever_runs_it() {
    let joins = Fresh { backfills: Some(AdvertisementId::from_bytes([5; 16])), ..two() };
    for mode in [ServerMode::Advertised, ServerMode::Peer, ServerMode::None] {
        let step = begin(&rules(None, mode), joins.clone(), &never, START);
        assert_eq!(step.effects, [Effect::WantServer], "{mode:?}");
    }
}

/// The host: an open NAT first, then who has waited longest, ties by id.
#[test]
fn a_peer_hosts_who_can_be_reached_or_has_waited_longest() {
    let host = |members: &[Member], open: &[u8]| {
        let step = begin(
            &rules(None, ServerMode::Peer),
            fresh(members.to_vec()),
            &|it| open.iter().any(|n| ticket(*n) == it),
            START,
        );
        let Stage::Playing { place: Place::Peer { host }, .. } = step.next.unwrap().stage else { panic!() };
        host
    };
    let members = [member(1, 500, &[11, 10]), member(2, 400, &[21]), member(3, 400, &[20])];
    assert_eq!(host(&members, &[]), client(20), "waited longest, and comes first of two");
    assert_eq!(host(&members, &[1, 2]), client(21), "waited longest of those who can be reached");
    assert_eq!(host(&members, &[1]), client(10), "the first of the party");
}

#[test]
fn the_last_answer_decides_where_without_a_server_to_be_found() {
    let (play, step) = after(&rules(Some(1_000_000), ServerMode::None), &all_agree());
    assert_eq!((stage(&play), step.effects), ("playing".to_owned(), vec![Effect::Begin]));
}
