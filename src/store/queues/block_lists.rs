//! Durable block lists: a row for each user who has ever had one.

use std::sync::Arc;

use crate::domain::id::UserKey;

/// Block list of a user, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlockList {
    /// User whose list it is.
    pub user: UserKey,
    /// Blocked users, sorted.
    pub blocked: Arc<[UserKey]>,
    /// Number of changes to the list, counted from 1.
    pub version: u64,
}

impl StoredBlockList {
    /// Blocked users as bytes: their keys, one after the other.
    pub(in crate::store) fn encode_blocked(&self) -> Vec<u8> {
        self.blocked.iter().flat_map(|user| *user.as_bytes()).collect()
    }

    /// Blocked users from `bytes`; `None` if these are not whole keys, in order.
    pub(in crate::store) fn decode_blocked(bytes: &[u8]) -> Option<Arc<[UserKey]>> {
        let (keys, rest) = bytes.as_chunks::<16>();
        let blocked: Arc<[UserKey]> = keys.iter().map(|key| UserKey::from_bytes(*key)).collect();
        (rest.is_empty() && blocked.is_sorted()).then_some(blocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_list_bytes_are_whole_keys_in_order() {
        let [low, high] = [1, 2].map(|number| UserKey::from_bytes([number; 16]));
        let list = StoredBlockList { user: high, blocked: Arc::new([low, high]), version: 1 };
        let bytes = list.encode_blocked();
        assert_eq!(StoredBlockList::decode_blocked(&bytes), Some(list.blocked));
        assert_eq!(StoredBlockList::decode_blocked(&bytes[..17]), None);
        assert_eq!(StoredBlockList::decode_blocked(&[&bytes[16..], &bytes[..16]].concat()), None);
        assert_eq!(StoredBlockList::decode_blocked(&[]), Some(Arc::default()));
    }
}
