//! A whole server on port 0 with its own store and a clock turned by hand, driven through the Rust client.
//!
//! What a chapter writes:
//!
//! ```text
//! let house = House::open(Setup::default()).await;       // memory store, the bundled rulesets, 127.0.0.1:0
//! let seattle = house.client_from("50.54.2.2").await;    // as if the packets came from there (x-forwarded-for)
//! let mut advertised = seattle.advertise(host(1, 11)).await.unwrap();
//! house.clock.turn(30_000);                              // half a minute passes, for the server and nobody else
//! house.swept().await;                                   // until the sweeper has seen the new time
//! house.close().await;                                   // drains; panics if a task is left or a log line was a WARN
//! ```
//!
//! What it needs of the server: to be handed a clock, a store and listeners, to say its addresses, and to stop when told
//! (`server::run(parts, shutdown)`), so that a test never races for a port and never reads the environment.

use std::sync::atomic::{AtomicU64, Ordering};

use fireteam::clock::Clock;
use fireteam::domain::time::UnixMs;
use fireteam_client::pb;

/// Time and chance in a test's hands: time stands still until turned, dice fall as told, bytes are a count.
#[derive(Debug)]
pub(crate) struct HandClock {
    now_ms: AtomicU64,
    dice: AtomicU64,
    drawn: AtomicU64,
}

impl HandClock {
    /// A clock at a moment that is no round number, so that a forgotten zero shows.
    pub(crate) fn new() -> Self {
        let half = 0.5_f64.to_bits();
        Self { now_ms: AtomicU64::new(1_700_000_012_345), dice: AtomicU64::new(half), drawn: AtomicU64::new(0) }
    }

    /// Lets `ms` pass.
    pub(crate) fn turn(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// What the dice show from now on; in [0, 1).
    pub(crate) fn load_dice(&self, shown: f64) {
        assert!((0.0..1.0).contains(&shown));
        self.dice.store(shown.to_bits(), Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> UnixMs {
        UnixMs(self.now_ms.load(Ordering::SeqCst))
    }

    fn dice(&self) -> f64 {
        f64::from_bits(self.dice.load(Ordering::SeqCst))
    }

    /// Never the same twice, which is all that a test needs of them.
    fn random_bytes(&self) -> [u8; 16] {
        let drawn = self.drawn.fetch_add(1, Ordering::SeqCst) + 1;
        u128::from(drawn).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_be_bytes()
    }
}

/// A session of one party of strangers, `players` strong.
pub(crate) fn party(name: &str, players: usize) -> pb::SessionCompositionData {
    let player =
        |number| pb::PlayerData { user_id: format!("{name}-{number}"), skill: Some(0.0), ..Default::default() };
    pb::SessionCompositionData { players: (0..players).map(player).collect(), ..Default::default() }
}

/// An advertisement of a lone host in set `set_id` with `seats` to give.
pub(crate) fn host(name: &str, set_id: u32, seats: i32) -> pb::MatchmakingUpdateAdvertisementRequest {
    let session = pb::SessionCompositionData { max_allowed_join_reservation_count: Some(seats), ..party(name, 1) };
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(set_id),
        session_composition: Some(session),
        connect_data: format!("{name}:7777").into_bytes(),
        ..Default::default()
    }
}

#[test]
fn the_clock_moves_only_when_turned() {
    let clock = HandClock::new();
    let before = clock.now();
    assert_eq!(clock.now(), before);
    clock.turn(250);
    assert_eq!(clock.now().since(before), 250);
    clock.load_dice(0.99);
    assert_eq!(clock.dice(), 0.99);
    assert_ne!(clock.random_bytes(), clock.random_bytes());
}

#[test]
fn a_host_has_one_player_and_its_own_connect_data() {
    let request = host("ada", 7, 11);
    assert_eq!(request.session_composition.unwrap().players[0].user_id, "ada-0");
    assert_eq!(request.connect_data, b"ada:7777");
}
