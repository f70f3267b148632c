//! Shares are kept to, by the greedy and for the modest, whoever asks and however many there are.

use std::sync::atomic::AtomicU32;

use super::*;
use crate::clock::ManualClock;
use crate::config::QUOTA_DEFAULTS;

const START: UnixMs = UnixMs(1_700_000_000_000);

struct Stage {
    clock: Arc<ManualClock>,
    quotas: Quotas,
    refusals: Arc<AtomicU32>,
}

fn stage() -> Stage {
    let clock = Arc::new(ManualClock::new(START, 1));
    let refusals = Arc::new(AtomicU32::new(0));
    let counted = refusals.clone();
    let on_refusal = Box::new(move |_: Class, _: Charge| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let quotas = Quotas::new(&QUOTA_DEFAULTS, clock.clone(), on_refusal);
    Stage { clock, quotas, refusals }
}

fn known(role: Role, name: &str) -> Payer {
    Payer::of(Some((role, UserKey::from_name(name))), None)
}

fn at(address: &str) -> Payer {
    Payer::of(None, Some(address.parse().unwrap()))
}

/// SEC-11: a thousand clients that each ask fifty times as often as they may, for five minutes: each is served its quota,
/// a tenth more or less, and one among them that asks as it should is never refused.
#[test]
fn a_thousand_greedy_callers_each_get_their_share() {
    let Stage { clock, quotas, refusals } = stage();
    let greedy: Vec<Payer> = (0..1_000).map(|number| known(Role::Client, &format!("greedy {number}"))).collect();
    let modest = known(Role::Client, "modest");
    let mut served = vec![0_u32; greedy.len()];
    // Their quota is 300 in five minutes; fifty times that is 15,000, fifty a second.
    for second in 0..300 {
        for (payer, served) in greedy.iter().zip(&mut served) {
            *served += (0..50).map(|_| u32::from(quotas.charge(*payer, Charge::Search, 1).is_ok())).sum::<u32>();
        }
        assert_eq!(quotas.charge(modest, Charge::Search, 1), Ok(()), "at {second} seconds");
        clock.advance_ms(1_000);
    }
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    println!("served in five minutes, of 15,000 asked: {least} to {most}");
    assert!(270 <= *least && *most <= 330, "{least} to {most}");
    assert_eq!(refusals.load(Ordering::Relaxed), 15_000_000 - served.iter().sum::<u32>());
}

/// SEC-11: a burst goes through, then so many a second; the refusal says to the millisecond when to come back.
#[test]
fn a_refusal_says_when_to_come_back() {
    let Stage { clock, quotas, .. } = stage();
    let ana = known(Role::Client, "ana");
    for _ in 0..10 {
        assert_eq!(quotas.charge(ana, Charge::Search, 1), Ok(()));
    }
    let over = quotas.charge(ana, Charge::Search, 1).unwrap_err();
    assert_eq!((over.quota(), over.retry_after_ms), ("client.search".to_owned(), 500));
    clock.advance_ms(499);
    assert_eq!(quotas.charge(ana, Charge::Search, 1).unwrap_err().retry_after_ms, 1);
    clock.advance_ms(1);
    assert_eq!(quotas.charge(ana, Charge::Search, 1), Ok(()));
    assert!(quotas.charge(ana, Charge::Search, 1).is_err());
    assert_eq!(quotas.charge(ana, Charge::Update, 1), Ok(()), "each charge has a quota of its own");
    assert_eq!(quotas.charge(known(Role::Client, "ben"), Charge::Search, 1), Ok(()), "and so has each caller");
    assert_eq!(quotas.charge(known(Role::Server, "ana"), Charge::Search, 1), Ok(()), "and each role");
}

/// SEC-10, SEC-11: what costs more is charged more; what costs more than a whole burst can still be asked, after a rest.
#[test]
fn the_dear_is_charged_dearly() {
    let Stage { clock, quotas, .. } = stage();
    let ana = known(Role::Client, "ana");
    assert_eq!(quotas.charge(ana, Charge::Search, 8), Ok(()));
    assert!(quotas.charge(ana, Charge::Search, 3).is_err(), "2 are left");
    assert_eq!(quotas.charge(ana, Charge::Search, 2), Ok(()));
    clock.advance_ms(60_000);
    assert_eq!(quotas.charge(ana, Charge::Search, 1_000), Ok(()));
    assert!(quotas.charge(ana, Charge::Search, 1).is_err(), "it took the whole burst");
}

/// SEC-11: strangers pay by where they are: an IPv4 address, however it is written, or an IPv6 /64.
#[test]
fn strangers_at_one_place_share() {
    assert_eq!(at("203.0.113.7"), at("::ffff:203.0.113.7"));
    assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:ffff:ffff:ffff"));
    assert_ne!(at("203.0.113.7"), at("203.0.113.8"));
    assert_ne!(at("2001:db8:0:1::1"), at("2001:db8:0:2::1"));
    assert_eq!(Payer::of(None, None), Payer::Rest);
    let Stage { quotas, .. } = stage();
    for host in 0..100 {
        assert_eq!(quotas.charge(at(&format!("2001:db8::{host:x}")), Charge::Search, 1), Ok(()));
    }
    assert!(quotas.charge(at("2001:db8::abcd"), Charge::Search, 1).is_err());
    assert_eq!(quotas.charge(at("2001:db8:0:1::"), Charge::Search, 1), Ok(()));
}

/// SEC-4, SEC-11: who shows worthless proofs again and again is told to wait; it costs nobody else anything.
#[test]
fn worthless_proofs_have_a_quota() {
    let Stage { clock, quotas, .. } = stage();
    let (here, there) = ("203.0.113.7".parse().ok(), "203.0.113.8".parse().ok());
    let told = (0..1_000).filter(|_| quotas.failed(here).is_ok()).count();
    assert_eq!(told, 10);
    assert_eq!(quotas.failed(here).unwrap_err().quota(), "anonymous.failure");
    assert_eq!(quotas.failed(there), Ok(()));
    clock.advance_ms(300_000);
    assert_eq!(quotas.failed(here), Ok(()));
}

/// Mutant M14: nothing comes back to whoever hangs up; only a stream's place does, when the stream is over.
#[test]
fn places_come_back_and_charges_do_not() {
    let Stage { quotas, .. } = stage();
    let ana = known(Role::Client, "ana");
    let one = quotas.open_stream(ana).unwrap();
    let two = quotas.open_stream(ana).unwrap();
    let over = quotas.open_stream(ana).unwrap_err();
    assert_eq!((over.quota(), over.retry_after_ms), ("client.stream".to_owned(), STREAM_RETRY_MS));
    assert!(quotas.open_stream(known(Role::Client, "ben")).unwrap().is_some());
    drop(one);
    let three = quotas.open_stream(ana).unwrap();
    assert!(quotas.open_stream(ana).is_err());
    drop((two, three));
    assert_eq!(quotas.open.lock().len(), 0, "nobody is remembered who has no stream");
}

/// SEC-11: a million strangers are no more memory than there is room for; those beyond it share, those who have shown who
/// they are have room of their own, and all is forgotten when it has been idle.
#[test]
fn memory_is_bounded() {
    let Stage { clock, quotas, .. } = stage();
    for number in 0..1_000_000_u64 {
        let address = Ipv6Addr::from_bits(u128::from(number) << 64 | 0x2000 << 112);
        let _ = quotas.charge(Payer::of(None, Some(address.into())), Charge::Search, 1);
    }
    assert!(quotas.held() <= PLACES_MAX, "{}", quotas.held());
    let late = quotas.charge(at("203.0.113.7"), Charge::Search, 1);
    assert!(late.is_err(), "who comes too late shares with all who did");
    assert_eq!(quotas.charge(known(Role::Client, "ana"), Charge::Search, 1), Ok(()));
    clock.advance_ms(600_000);
    assert_eq!(quotas.charge(at("203.0.113.7"), Charge::Search, 1), Ok(()));
    assert!(quotas.held() <= 4, "{}", quotas.held());
}

/// Without rules nobody is held back, and nothing is kept.
#[test]
fn without_rules_there_are_no_quotas() {
    let quotas = Quotas::off();
    for _ in 0..1_000 {
        assert_eq!(quotas.charge(at("203.0.113.7"), Charge::Search, 1), Ok(()));
        assert!(quotas.open_stream(at("203.0.113.7")).unwrap().is_none());
    }
    assert_eq!(quotas.held(), 0);
}

/// Every rule of the configuration is one that is understood here.
#[test]
fn every_default_is_a_quota() {
    let Stage { quotas, .. } = stage();
    assert_eq!(quotas.limits.len() + quotas.streams.len(), QUOTA_DEFAULTS.len());
}
