//! `<Hosting Allocate OfferMs>`: values, hash, and attributes without effect.

use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::ruleset::teams::{AllocatorOfferSpec, MatchesOfferedToAllocators};
use fireteam::rules;

fn parse(hosting: &str) -> Result<Ruleset, String> {
    let text = format!("<Ruleset Name='a' SetId='1'><Teams Count='2' Size='1'/><Queue/><Hosting {hosting}/></Ruleset>");
    rules::parse_ruleset("a.xml", &text)
        .map_err(|problems| problems.iter().map(|problem| format!("{problem}\n")).collect())
}

#[test]
fn allocation_attributes_have_their_values_and_change_the_hash() {
    let without = parse("Mode='game_server'").unwrap();
    assert_eq!(without.hosting.allocator_offers, AllocatorOfferSpec::NO_OFFERS);
    assert_eq!(parse("Mode='game_server' Allocate='never'").unwrap().hash, without.hash);
    let fallback = parse("Mode='game_server' Allocate='fallback'").unwrap();
    assert_eq!(
        fallback.hosting.allocator_offers,
        AllocatorOfferSpec { mode: MatchesOfferedToAllocators::Fallback, offer_ms: 5_000 }
    );
    let always = parse("Mode='game_server' Allocate='always' OfferMs='500'").unwrap();
    assert_eq!(
        always.hosting.allocator_offers,
        AllocatorOfferSpec { mode: MatchesOfferedToAllocators::Always, offer_ms: 500 }
    );
    let slower = parse("Mode='game_server' Allocate='always' OfferMs='60000'").unwrap();
    let mut hashes = [without.hash, fallback.hash, always.hash, slower.hash];
    hashes.sort_unstable();
    assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]), "{hashes:?}");
}

#[test]
fn allocation_attributes_that_are_wrong_or_without_effect_are_reported() {
    for (hosting, problem) in [
        ("Mode='game_server' Allocate='sometimes'", "`Allocate`"),
        ("Mode='game_server' Allocate='always' OfferMs='499'", "`OfferMs`"),
        ("Mode='game_server' Allocate='always' OfferMs='60001'", "`OfferMs`"),
        ("Mode='game_server' OfferMs='500'", "`OfferMs` has no effect here"),
        ("Mode='game_server' Allocate='never' OfferMs='500'", "`OfferMs` has no effect here"),
        ("Mode='peer' Allocate='always'", "`Allocate` has no effect here"),
        ("Mode='none' OfferMs='500'", "`OfferMs` has no effect here"),
    ] {
        let problems = parse(hosting).expect_err(hosting);
        assert!(problems.contains(problem), "{hosting}: {problems}");
    }
}
