//! Shares are kept to, by the greedy and for the modest, whoever asks and however many there are.

use std::sync::atomic::AtomicU32;

use super::*;
use crate::clock::ManualClock;
use crate::config::QUOTA_DEFAULTS;

const START: UnixMs = UnixMs(1_700_000_000_000);

struct RateLimitFixture {
    clock: Arc<ManualClock>,
    rate_limits: RateLimits,
    rejected_calls: Arc<AtomicU32>,
}

fn fixture() -> RateLimitFixture {
    let clock = Arc::new(ManualClock::new(START, 1));
    let refusals = Arc::new(AtomicU32::new(0));
    let counted = refusals.clone();
    let on_refusal = Box::new(move |_: CallerClass, _: RateLimitKind| {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let quotas = RateLimits::new(&QUOTA_DEFAULTS, clock.clone(), on_refusal);
    RateLimitFixture { clock, rate_limits: quotas, rejected_calls: refusals }
}

fn authenticated_key(role: Role, name: &str) -> RateLimitKey {
    RateLimitKey::for_caller(Some((role, UserKey::from_name(name))), None)
}

fn address_key(address: &str) -> RateLimitKey {
    RateLimitKey::for_caller(None, Some(address.parse().unwrap()))
}

/// SEC-11: a thousand clients that each ask fifty times as often as they may, for five minutes: each is served its quota,
/// a tenth more or less, and one among them that asks as it should is never refused.
#[test]
fn rate_limit_gives_a_thousand_greedy_callers_their_share_each() {
    let RateLimitFixture { clock, rate_limits: quotas, rejected_calls: refusals } = fixture();
    let greedy: Vec<RateLimitKey> =
        (0..1_000).map(|number| authenticated_key(Role::Client, &format!("greedy {number}"))).collect();
    let modest = authenticated_key(Role::Client, "modest");
    let mut served = vec![0_u32; greedy.len()];
    // Their quota is 300 in five minutes; fifty times that is 15,000, fifty a second.
    for second in 0..300 {
        for (payer, served) in greedy.iter().zip(&mut served) {
            *served +=
                (0..50).map(|_| u32::from(quotas.consume(*payer, RateLimitKind::Search, 1).is_ok())).sum::<u32>();
        }
        assert_eq!(quotas.consume(modest, RateLimitKind::Search, 1), Ok(()), "at {second} seconds");
        clock.advance_ms(1_000);
    }
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    println!("served in five minutes, of 15,000 asked: {least} to {most}");
    assert!(270 <= *least && *most <= 330, "{least} to {most}");
    assert_eq!(refusals.load(Ordering::Relaxed), 15_000_000 - served.iter().sum::<u32>());
}

/// SEC-11: a burst goes through, then so many a second; the refusal says to the millisecond when to come back.
#[test]
fn rate_limit_error_gives_the_exact_retry_delay() {
    let RateLimitFixture { clock, rate_limits: quotas, .. } = fixture();
    let ana = authenticated_key(Role::Client, "ana");
    for _ in 0..10 {
        assert_eq!(quotas.consume(ana, RateLimitKind::Search, 1), Ok(()));
    }
    let over = quotas.consume(ana, RateLimitKind::Search, 1).unwrap_err();
    assert_eq!((over.limit_name(), over.retry_after_ms), ("client.search".to_owned(), 500));
    clock.advance_ms(499);
    assert_eq!(quotas.consume(ana, RateLimitKind::Search, 1).unwrap_err().retry_after_ms, 1);
    clock.advance_ms(1);
    assert_eq!(quotas.consume(ana, RateLimitKind::Search, 1), Ok(()));
    assert!(quotas.consume(ana, RateLimitKind::Search, 1).is_err());
    assert_eq!(quotas.consume(ana, RateLimitKind::Update, 1), Ok(()), "each charge has a quota of its own");
    assert_eq!(
        quotas.consume(authenticated_key(Role::Client, "ben"), RateLimitKind::Search, 1),
        Ok(()),
        "and so has each caller"
    );
    assert_eq!(
        quotas.consume(authenticated_key(Role::GameServer, "ana"), RateLimitKind::Search, 1),
        Ok(()),
        "and each role"
    );
}

/// SEC-10, SEC-11: what costs more is charged more; what costs more than a whole burst can still be asked, after a rest.
#[test]
fn rate_limit_charges_expensive_calls_more() {
    let RateLimitFixture { clock, rate_limits: quotas, .. } = fixture();
    let ana = authenticated_key(Role::Client, "ana");
    assert_eq!(quotas.consume(ana, RateLimitKind::Search, 8), Ok(()));
    assert!(quotas.consume(ana, RateLimitKind::Search, 3).is_err(), "2 are left");
    assert_eq!(quotas.consume(ana, RateLimitKind::Search, 2), Ok(()));
    clock.advance_ms(60_000);
    assert_eq!(quotas.consume(ana, RateLimitKind::Search, 1_000), Ok(()));
    assert!(quotas.consume(ana, RateLimitKind::Search, 1).is_err(), "it took the whole burst");
}

/// SEC-11: strangers pay by where they are: an IPv4 address, however it is written, or an IPv6 /64.
#[test]
fn rate_limit_is_shared_by_anonymous_callers_of_one_prefix() {
    assert_eq!(address_key("203.0.113.7"), address_key("::ffff:203.0.113.7"));
    assert_eq!(address_key("2001:db8::1"), address_key("2001:db8::ffff:ffff:ffff:ffff"));
    assert_ne!(address_key("203.0.113.7"), address_key("203.0.113.8"));
    assert_ne!(address_key("2001:db8:0:1::1"), address_key("2001:db8:0:2::1"));
    assert_eq!(RateLimitKey::for_caller(None, None), RateLimitKey::Shared);
    let RateLimitFixture { rate_limits: quotas, .. } = fixture();
    for host in 0..100 {
        assert_eq!(quotas.consume(address_key(&format!("2001:db8::{host:x}")), RateLimitKind::Search, 1), Ok(()));
    }
    assert!(quotas.consume(address_key("2001:db8::abcd"), RateLimitKind::Search, 1).is_err());
    assert_eq!(quotas.consume(address_key("2001:db8:0:1::"), RateLimitKind::Search, 1), Ok(()));
}

/// SEC-4, SEC-11: who shows worthless proofs again and again is told to wait; it costs nobody else anything.
#[test]
fn rate_limit_applies_to_authentication_failures() {
    let RateLimitFixture { clock, rate_limits: quotas, .. } = fixture();
    let (here, there) = ("203.0.113.7".parse().ok(), "203.0.113.8".parse().ok());
    let told = (0..1_000).filter(|_| quotas.consume_auth_failure(here).is_ok()).count();
    assert_eq!(told, 10);
    assert_eq!(quotas.consume_auth_failure(here).unwrap_err().limit_name(), "anonymous.failure");
    assert_eq!(quotas.consume_auth_failure(there), Ok(()));
    clock.advance_ms(300_000);
    assert_eq!(quotas.consume_auth_failure(here), Ok(()));
}

/// Mutant M14: nothing comes back to whoever hangs up; only a stream's place does, when the stream is over.
#[test]
fn stream_permit_is_returned_on_drop_and_calls_are_not() {
    let RateLimitFixture { rate_limits: quotas, .. } = fixture();
    let ana = authenticated_key(Role::Client, "ana");
    let one = quotas.acquire_stream_permit(ana).unwrap();
    let two = quotas.acquire_stream_permit(ana).unwrap();
    let over = quotas.acquire_stream_permit(ana).unwrap_err();
    assert_eq!((over.limit_name(), over.retry_after_ms), ("client.stream".to_owned(), STREAM_RETRY_AFTER_MS));
    assert!(quotas.acquire_stream_permit(authenticated_key(Role::Client, "ben")).unwrap().is_some());
    drop(one);
    let three = quotas.acquire_stream_permit(ana).unwrap();
    assert!(quotas.acquire_stream_permit(ana).is_err());
    drop((two, three));
    assert_eq!(quotas.open_streams.lock().len(), 0, "nobody is remembered who has no stream");
}

/// SEC-11: a million strangers are no more memory than there is room for; those beyond it share, those who have shown who
/// they are have room of their own, and all is forgotten when it has been idle.
#[test]
fn rate_limit_memory_is_bounded() {
    let RateLimitFixture { clock, rate_limits: quotas, .. } = fixture();
    for number in 0..1_000_000_u64 {
        let address = Ipv6Addr::from_bits(u128::from(number) << 64 | 0x2000 << 112);
        let _ = quotas.consume(RateLimitKey::for_caller(None, Some(address.into())), RateLimitKind::Search, 1);
    }
    assert!(quotas.bucket_count() <= ADDRESS_BUCKETS_MAX, "{}", quotas.bucket_count());
    let late = quotas.consume(address_key("203.0.113.7"), RateLimitKind::Search, 1);
    assert!(late.is_err(), "who comes too late shares with all who did");
    assert_eq!(quotas.consume(authenticated_key(Role::Client, "ana"), RateLimitKind::Search, 1), Ok(()));
    clock.advance_ms(600_000);
    assert_eq!(quotas.consume(address_key("203.0.113.7"), RateLimitKind::Search, 1), Ok(()));
    assert!(quotas.bucket_count() <= 4, "{}", quotas.bucket_count());
}

/// Without rules nobody is held back, and nothing is kept.
#[test]
fn rate_limits_without_rules_reject_no_call() {
    let quotas = RateLimits::unlimited();
    for _ in 0..1_000 {
        assert_eq!(quotas.consume(address_key("203.0.113.7"), RateLimitKind::Search, 1), Ok(()));
        assert!(quotas.acquire_stream_permit(address_key("203.0.113.7")).unwrap().is_none());
    }
    assert_eq!(quotas.bucket_count(), 0);
}

/// Every rule of the configuration is one that is understood here.
#[test]
fn rate_limit_defaults_are_all_known() {
    let RateLimitFixture { rate_limits: quotas, .. } = fixture();
    assert_eq!(quotas.limits.len() + quotas.stream_limits.len(), QUOTA_DEFAULTS.len());
}
