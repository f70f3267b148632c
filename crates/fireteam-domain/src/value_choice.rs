//! Choice of one entry that the string lists of some sessions have in common, such as the map that they play.

use crate::attribute::AttributeValue;
use crate::attribute_values::AttributeValues;
use crate::chosen_value::ChosenValue;
use crate::filter::{Refusal, RefusingSide};
use crate::id::UserKey;
use crate::played_values::PlayedValues;
use crate::ruleset::{HardRule, OverlapChoice, Ruleset};
use crate::time::UnixMs;

/// Number from which entries are drawn: the same for the same id, at every server.
pub fn seed_of_id(id: &[u8; 16]) -> u64 {
    id.iter().fold(0, |seed: u64, &byte| seed.rotate_left(8) ^ u64::from(byte))
}

/// Facts on which a choice among common entries depends.
#[derive(Clone, Copy, Debug)]
pub struct ValueChoiceContext<'a> {
    /// Number from which entries are drawn.
    pub seed: u64,
    /// Users who play together.
    pub users: &'a [UserKey],
    /// Values that these users played; of others it may have some too.
    pub played: &'a PlayedValues,
    /// Entries that others in the same match were told. Where there is one, only it can be chosen.
    pub promised: &'a [ChosenValue],
    /// Time of the choice.
    pub now: UnixMs,
}

/// Entries that the ruleset's overlap filters choose for these sessions, in file order. A session without a list has no say, and
/// without any list there is no choice. An error is the filter whose lists have nothing in common, although each two of them may.
pub fn choose_values<'a>(
    ruleset: &Ruleset,
    sessions: impl Iterator<Item = &'a AttributeValues> + Clone,
    input: ValueChoiceContext<'_>,
) -> Result<Box<[ChosenValue]>, Refusal> {
    let mut chosen = Vec::new();
    for (filter_index, filter) in ruleset.hard_filters.iter().enumerate() {
        let HardRule::Overlap { attribute, choose: Some(choice) } = filter.rule else { continue };
        let mut lists = sessions.clone().filter_map(|values| match values.get(attribute) {
            Some(AttributeValue::StringList(list)) => Some(&**list),
            _ => None,
        });
        let Some(first) = lists.next() else { continue };
        let mut common: Vec<&str> = first.iter().map(|entry| &**entry).collect();
        let has_entry = |list: &[Box<str>], entry: &str| list.binary_search_by(|known| (**known).cmp(entry)).is_ok();
        lists.for_each(|list| common.retain(|entry| has_entry(list, entry)));
        let name = &ruleset.attributes[attribute].name;
        if let Some(promised) = input.promised.iter().find(|promised| promised.attribute == *name) {
            common.retain(|entry| *entry == &*promised.value);
        }
        let index = match choice {
            OverlapChoice::FirstCommon => 0,
            OverlapChoice::Drawn => index_drawn(input.seed, common.len()),
            OverlapChoice::LeastRecentlyPlayed { recent_ms } => {
                index_least_recently_played(input, name, &common, recent_ms)
            }
        };
        let Some(value) = common.get(index) else {
            return Err(Refusal::HardFilter { filter_index, side: RefusingSide::Searcher });
        };
        chosen.push(ChosenValue { attribute: name.clone(), value: (*value).into() });
    }
    Ok(chosen.into())
}

/// Index of the entry whose latest match with any of the users is the oldest. One that none of them played recently comes before all
/// others, and among equals the first.
fn index_least_recently_played(
    input: ValueChoiceContext<'_>,
    attribute: &str,
    common: &[&str],
    recent_ms: u64,
) -> usize {
    let last_recent = |entry: &str| {
        let played = ChosenValue { attribute: attribute.into(), value: entry.into() };
        let last = input.played.last_started_at(input.users, &played);
        last.filter(|started_at| input.now.ms_since(*started_at) < recent_ms)
    };
    let indexed = common.iter().enumerate().map(|(index, entry)| (last_recent(entry), index));
    indexed.min().map_or(0, |(_, index)| index)
}

/// Index below `count`, by SplitMix64 (Steele, Lea and Flood, 2014), so that near seeds give other indexes.
fn index_drawn(seed: u64, count: usize) -> usize {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((mixed ^ (mixed >> 31)) % count.max(1) as u64).unwrap_or(0)
}
