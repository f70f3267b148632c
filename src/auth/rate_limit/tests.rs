//! Rate limits under excessive callers, retry delays, shared prefixes, stream permits and memory bounds.

use std::net::Ipv6Addr;
use std::sync::atomic::AtomicU32;

use super::*;
use crate::auth::identity::Role;
use crate::clock::ManualClock;
use crate::config::DEFAULT_RATE_LIMITS;
use crate::domain::id::UserKey;

const START: UnixMs = UnixMs(1_700_000_000_000);

struct RateLimitFixture {
    clock: Arc<ManualClock>,
    rate_limits: RateLimits,
    rejected_calls: Arc<AtomicU32>,
}

fn fixture() -> RateLimitFixture {
    let clock = Arc::new(ManualClock::new(START, 1));
    let rejected_calls = Arc::new(AtomicU32::new(0));
    let counter = rejected_calls.clone();
    let on_rate_limited = Box::new(move |_: CallerClass, _: RateLimitKind| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let rate_limits = RateLimits::new(&DEFAULT_RATE_LIMITS, clock.clone(), on_rate_limited);
    RateLimitFixture { clock, rate_limits, rejected_calls }
}

fn authenticated_key(role: Role, name: &str) -> RateLimitKey {
    RateLimitKey::for_caller(Some((role, UserKey::from_name(name))), None)
}

fn address_key(address: &str) -> RateLimitKey {
    RateLimitKey::for_caller(None, Some(address.parse().unwrap()))
}

/// SEC-11: a thousand clients call fifty times as often as allowed for five minutes. Each is served its limit, plus or
/// minus a tenth, and a client within its limit is never rejected.
#[test]
fn rate_limit_gives_a_thousand_greedy_callers_their_share_each() {
    let RateLimitFixture { clock, rate_limits, rejected_calls } = fixture();
    let greedy: Vec<RateLimitKey> =
        (0..1_000).map(|number| authenticated_key(Role::Client, &format!("greedy {number}"))).collect();
    let modest = authenticated_key(Role::Client, "modest");
    let mut served = vec![0_u32; greedy.len()];
    // The limit is 300 in five minutes; fifty times that is 15,000, which is 50 per second.
    for second in 0..300 {
        for (key, served) in greedy.iter().zip(&mut served) {
            *served +=
                (0..50).map(|_| u32::from(rate_limits.consume(*key, RateLimitKind::Search, 1).is_ok())).sum::<u32>();
        }
        assert_eq!(rate_limits.consume(modest, RateLimitKind::Search, 1), Ok(()), "at {second} seconds");
        clock.advance_ms(1_000);
    }
    let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
    println!("served in five minutes, of 15,000 calls: {least} to {most}");
    assert!(*least >= 270 && *most <= 330, "{least} to {most}");
    assert_eq!(rejected_calls.load(Ordering::Relaxed), 15_000_000 - served.iter().sum::<u32>());
}

/// SEC-11: a burst is admitted, then a rate per second; the error has the retry delay to the millisecond.
#[test]
fn rate_limit_error_gives_the_exact_retry_delay() {
    let RateLimitFixture { clock, rate_limits, .. } = fixture();
    let ana = authenticated_key(Role::Client, "ana");
    for _ in 0..10 {
        assert_eq!(rate_limits.consume(ana, RateLimitKind::Search, 1), Ok(()));
    }
    let exceeded = rate_limits.consume(ana, RateLimitKind::Search, 1).unwrap_err();
    assert_eq!((exceeded.limit_name(), exceeded.retry_after_ms), ("client.search".to_owned(), 500));
    clock.advance_ms(499);
    assert_eq!(rate_limits.consume(ana, RateLimitKind::Search, 1).unwrap_err().retry_after_ms, 1);
    clock.advance_ms(1);
    assert_eq!(rate_limits.consume(ana, RateLimitKind::Search, 1), Ok(()));
    assert!(rate_limits.consume(ana, RateLimitKind::Search, 1).is_err());
    assert_eq!(rate_limits.consume(ana, RateLimitKind::Update, 1), Ok(()), "each kind has its own limit");
    assert_eq!(
        rate_limits.consume(authenticated_key(Role::Client, "ben"), RateLimitKind::Search, 1),
        Ok(()),
        "each caller has its own limit"
    );
    assert_eq!(
        rate_limits.consume(authenticated_key(Role::GameServer, "ana"), RateLimitKind::Search, 1),
        Ok(()),
        "each role has its own limit"
    );
}

/// SEC-10, SEC-11: a call consumes its cost; a call that costs more than a full burst is admitted after an idle period.
#[test]
fn rate_limit_charges_expensive_calls_more() {
    let RateLimitFixture { clock, rate_limits, .. } = fixture();
    let ana = authenticated_key(Role::Client, "ana");
    assert_eq!(rate_limits.consume(ana, RateLimitKind::Search, 8), Ok(()));
    assert!(rate_limits.consume(ana, RateLimitKind::Search, 3).is_err(), "2 are left");
    assert_eq!(rate_limits.consume(ana, RateLimitKind::Search, 2), Ok(()));
    clock.advance_ms(60_000);
    assert_eq!(rate_limits.consume(ana, RateLimitKind::Search, 1_000), Ok(()));
    assert!(rate_limits.consume(ana, RateLimitKind::Search, 1).is_err(), "the call consumed the full burst");
}

/// SEC-11: anonymous callers are limited by IPv4 address, mapped or not, or by IPv6 /64.
#[test]
fn rate_limit_is_shared_by_anonymous_callers_of_one_prefix() {
    assert_eq!(address_key("203.0.113.7"), address_key("::ffff:203.0.113.7"));
    assert_eq!(address_key("2001:db8::1"), address_key("2001:db8::ffff:ffff:ffff:ffff"));
    assert_ne!(address_key("203.0.113.7"), address_key("203.0.113.8"));
    assert_ne!(address_key("2001:db8:0:1::1"), address_key("2001:db8:0:2::1"));
    assert_eq!(RateLimitKey::for_caller(None, None), RateLimitKey::Shared);
    let RateLimitFixture { rate_limits, .. } = fixture();
    for host in 0..100 {
        assert_eq!(rate_limits.consume(address_key(&format!("2001:db8::{host:x}")), RateLimitKind::Search, 1), Ok(()));
    }
    assert!(rate_limits.consume(address_key("2001:db8::abcd"), RateLimitKind::Search, 1).is_err());
    assert_eq!(rate_limits.consume(address_key("2001:db8:0:1::"), RateLimitKind::Search, 1), Ok(()));
}

/// SEC-4, SEC-11: repeated authentication failures are rate limited per address; other addresses are not affected.
#[test]
fn rate_limit_applies_to_authentication_failures() {
    let RateLimitFixture { clock, rate_limits, .. } = fixture();
    let (address, other_address) = ("203.0.113.7".parse().ok(), "203.0.113.8".parse().ok());
    let admitted = (0..1_000).filter(|_| rate_limits.consume_auth_failure(address).is_ok()).count();
    assert_eq!(admitted, 10);
    assert_eq!(rate_limits.consume_auth_failure(address).unwrap_err().limit_name(), "anonymous.auth_failure");
    assert_eq!(rate_limits.consume_auth_failure(other_address), Ok(()));
    clock.advance_ms(300_000);
    assert_eq!(rate_limits.consume_auth_failure(address), Ok(()));
}

/// SEC-11: a cancelled call is not refunded; only the permit of a stream is returned when the stream ends.
#[test]
fn stream_permit_is_returned_on_drop_and_calls_are_not() {
    let RateLimitFixture { rate_limits, .. } = fixture();
    let ana = authenticated_key(Role::Client, "ana");
    let first = rate_limits.acquire_stream_permit(ana).unwrap();
    let second = rate_limits.acquire_stream_permit(ana).unwrap();
    let exceeded = rate_limits.acquire_stream_permit(ana).unwrap_err();
    assert_eq!((exceeded.limit_name(), exceeded.retry_after_ms), ("client.stream".to_owned(), STREAM_RETRY_AFTER_MS));
    assert!(rate_limits.acquire_stream_permit(authenticated_key(Role::Client, "ben")).unwrap().is_some());
    drop(first);
    let third = rate_limits.acquire_stream_permit(ana).unwrap();
    assert!(rate_limits.acquire_stream_permit(ana).is_err());
    drop((second, third));
    assert_eq!(rate_limits.open_streams.lock().len(), 0, "a caller without a stream has no entry");
}

/// SEC-11: a million anonymous callers use bounded memory. Those of the flooded networks share buckets; callers of other
/// networks are admitted, authenticated callers have their own budget, and idle buckets are dropped.
#[test]
fn rate_limit_memory_is_bounded_and_fair() {
    let RateLimitFixture { clock, rate_limits, .. } = fixture();
    let flooding = |number: u64| Ipv6Addr::from_bits(u128::from(number) << 64 | 0x2000 << 112);
    let mut served = 0;
    for number in 0..1_000_000_u64 {
        let key = RateLimitKey::for_caller(None, Some(flooding(number).into()));
        served += u32::from(rate_limits.consume(key, RateLimitKind::Search, 1).is_ok());
    }
    assert!(rate_limits.bucket_count() <= ADDRESS_BUCKETS_MAX, "{}", rate_limits.bucket_count());
    println!("{served} of a million served in one moment");
    // Half of the table, because each caller has two buckets, and one burst for each of sixteen /48.
    assert!(served <= ADDRESS_BUCKETS_MAX as u32 / 2 + 16 * 100 + 1, "{served}");
    let late = RateLimitKey::for_caller(None, Some(flooding(999_999).into()));
    assert!(rate_limits.consume(late, RateLimitKind::Search, 1).is_err(), "the flood throttles itself");
    // A bucket of a network may be that of one of the sixteen by chance, one of 64.
    let strangers = (0..200).map(|number| address_key(&format!("203.0.{number}.7")));
    let admitted = strangers.filter(|key| rate_limits.consume(*key, RateLimitKind::Search, 1).is_ok()).count();
    assert!(180 <= admitted, "{admitted} of 200 callers of other networks");
    assert_eq!(rate_limits.consume(authenticated_key(Role::Client, "ana"), RateLimitKind::Search, 1), Ok(()));
    clock.advance_ms(600_000);
    assert_eq!(rate_limits.consume(address_key("203.0.113.7"), RateLimitKind::Search, 1), Ok(()));
    assert!(rate_limits.bucket_count() <= 4, "{}", rate_limits.bucket_count());
}

/// SEC-11: clients of one IPv4 address, or of one IPv6 /56, are limited together, for any accounts. A client
/// above its own limit spends nothing of its neighbors, and other addresses are not affected.
#[test]
fn rate_limit_of_one_address_holds_many_accounts_together() {
    let RateLimitFixture { rate_limits, .. } = fixture();
    let search = |name: &str, address: &str| {
        let key = authenticated_key(Role::Client, name);
        rate_limits.consume_for_caller_and_network(key, Some(address.parse().unwrap()), RateLimitKind::Search, 1)
    };
    for number in 0..1_000 {
        let is_served = search("greedy", "203.0.113.7").is_ok();
        assert_eq!(is_served, number < 10, "{number}");
    }
    for number in 0..190 {
        assert_eq!(search(&format!("account {number}"), "203.0.113.7"), Ok(()), "{number}");
    }
    let exceeded = search("account 190", "::ffff:203.0.113.7").unwrap_err();
    assert_eq!(exceeded.limit_name(), "client_address.search");
    assert_eq!(search("account 191", "203.0.113.8"), Ok(()));
    for number in 0..200 {
        assert_eq!(search(&format!("six {number}"), &format!("2001:db8:0:{number:x}::1")), Ok(()), "{number}");
    }
    assert!(search("six 200", "2001:db8:0:ff::1").is_err(), "the same /56");
    assert_eq!(search("six 201", "2001:db8:0:100::1"), Ok(()));
    let server = authenticated_key(Role::GameServer, "eu-1");
    assert_eq!(rate_limits.consume_for_caller_and_network(server, None, RateLimitKind::Search, 1), Ok(()));
}

/// A refund can be consumed again, and no more.
#[test]
fn rate_limit_refund_gives_back_what_was_consumed() {
    let RateLimitFixture { clock, rate_limits, .. } = fixture();
    let ana = authenticated_key(Role::Client, "ana");
    for round in 0..100 {
        assert_eq!(rate_limits.consume(ana, RateLimitKind::Search, 3), Ok(()), "{round}");
        rate_limits.refund(ana, RateLimitKind::Search, 3);
    }
    rate_limits.refund(ana, RateLimitKind::Search, 1_000);
    clock.advance_ms(1_000);
    assert_eq!(rate_limits.consume(ana, RateLimitKind::Search, 10), Ok(()));
    assert!(rate_limits.consume(ana, RateLimitKind::Search, 1).is_err(), "never more than a burst");
    rate_limits.refund(authenticated_key(Role::Client, "ben"), RateLimitKind::Search, 1);
}

/// Without rules every call is admitted, and no bucket is kept.
#[test]
fn rate_limits_without_rules_reject_no_call() {
    let rate_limits = RateLimits::unlimited();
    for _ in 0..1_000 {
        assert_eq!(rate_limits.consume(address_key("203.0.113.7"), RateLimitKind::Search, 1), Ok(()));
        assert!(rate_limits.acquire_stream_permit(address_key("203.0.113.7")).unwrap().is_none());
    }
    assert_eq!(rate_limits.bucket_count(), 0);
}

/// Every default rule of the configuration names a known role and kind.
#[test]
fn rate_limit_defaults_are_all_known() {
    let RateLimitFixture { rate_limits, .. } = fixture();
    let limits = rate_limits.limits.iter().flatten().count();
    assert_eq!(limits + rate_limits.stream_limits.len(), DEFAULT_RATE_LIMITS.len());
    assert!(CallerClass::ALL.into_iter().enumerate().all(|(place, class)| class.index() == place));
    assert!(RateLimitKind::ALL.into_iter().enumerate().all(|(place, kind)| kind as usize == place));
}
