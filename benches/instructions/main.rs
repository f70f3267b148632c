//! Hot paths for the instruction gate: `.ci/gate` runs each row under callgrind and compares its instructions with
//! `benches/instructions.toml`.
//!
//! `instructions --list` prints the rows, `instructions ROW` runs one. Only `counted_section` is counted: state is
//! built before it, on one thread, with fixed seeds, without network or disk.

mod authenticated;
#[path = "../../tests/common/faulty_store.rs"]
#[expect(dead_code, reason = "the tests of the engine use its faults")]
mod faulty_store;
mod feed;
mod passes;
#[path = "../past_matches.rs"]
mod past_matches;
mod player_attributes;
mod population;
mod queue;
#[path = "../../tests/it/store/queue_rows.rs"]
#[expect(dead_code, reason = "the rows are shared with the tests of the stores")]
mod queue_rows;
mod search;
mod server;
#[path = "../split_mix64.rs"]
mod split_mix64;
mod tokens;

use crate::player_attributes::StatedBy;

/// The server's allocator, so that the rows cost what they cost in the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Counted sections of each row; the gate takes the median. Background timers may fire in one of them.
const SECTIONS: usize = 3;

/// A row: its name, the function that it measures, and the code that runs it.
struct Row {
    name: &'static str,
    function: &'static str,
    run: fn(),
}

/// All rows. Searches are one hot path, counted for three classes of query. The rows of attributes have a
/// pair each: by attributes of parties, and by those of players.
const ROWS: [Row; 21] = [
    Row { name: "search_plain", function: "AdvertisementIndex::search", run: search::plain },
    Row { name: "search_filtered", function: "AdvertisementIndex::search", run: search::filtered },
    Row { name: "search_refused_by_all", function: "AdvertisementIndex::search", run: search::refused_by_all },
    Row {
        name: "search_party_attributes",
        function: "AdvertisementIndex::search",
        run: || player_attributes::search(StatedBy::Party),
    },
    Row {
        name: "search_player_attributes",
        function: "AdvertisementIndex::search",
        run: || player_attributes::search(StatedBy::Players),
    },
    Row { name: "upsert_unary", function: "MatchmakingApi::update_advertisement", run: server::upsert_unary },
    Row { name: "upsert_streamed", function: "ConnectResponses::poll_next", run: server::upsert_streamed },
    Row { name: "heartbeat", function: "MatchmakingApi::update_advertisement", run: server::heartbeat },
    Row { name: "authenticated_heartbeat", function: "CallService::call", run: authenticated::heartbeat },
    Row { name: "reserve", function: "MatchmakingApi::reserve", run: server::reserve },
    Row { name: "enter", function: "QueueApi::enter", run: queue::enter },
    Row { name: "ticket_status", function: "TicketWatch::next_status", run: queue::ticket_status },
    Row { name: "propose", function: "QueueRows::propose_match", run: queue::propose },
    Row { name: "pass_duel", function: "queue::pass::run_pass", run: passes::duel },
    Row { name: "pass_filtered_6v6", function: "queue::pass::run_pass", run: passes::filtered_6v6 },
    Row { name: "pass_avoiding_6v6", function: "queue::pass::run_pass", run: passes::avoiding_6v6 },
    Row { name: "pass_best_quality", function: "queue::pass::run_pass", run: passes::best_quality },
    Row {
        name: "pass_party_attributes",
        function: "queue::pass::run_pass",
        run: || player_attributes::pass(StatedBy::Party),
    },
    Row {
        name: "pass_player_attributes",
        function: "queue::pass::run_pass",
        run: || player_attributes::pass(StatedBy::Players),
    },
    Row { name: "feed_record", function: "AdvertState::apply_feed", run: feed::record },
    Row { name: "token_open", function: "HmacTokenSigner::verify", run: tokens::open },
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--list") {
        ROWS.iter().for_each(|row| println!("{} {}", row.name, row.function));
        return;
    }
    // `cargo bench` starts this too, without a row.
    for row in ROWS.iter().filter(|row| words.iter().any(|word| word == row.name)) {
        (row.run)();
    }
}

/// Runs `counted` [`SECTIONS`] times on a state that `prepare` builds each time. `counted` returns its number of
/// operations, which is printed for the gate.
fn count<S>(mut prepare: impl FnMut(usize) -> S, mut counted: impl FnMut(&mut S) -> usize) {
    for section in 0..SECTIONS {
        let mut state = prepare(section);
        let mut operations = 0;
        counted_section(&mut || operations = counted(&mut state));
        println!("operations {operations}");
    }
}

/// Callgrind counts instructions inside this function only, and writes a profile each time it returns. The gate names it.
#[inline(never)]
fn counted_section(body: &mut dyn FnMut()) {
    std::hint::black_box(body)();
}
