//! Conversion of UpdateBlockList requests.

use std::collections::BTreeSet;

use crate::api::convert::{RequestReader, field_checks};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::block_list::BlockListChange;
use crate::domain::id::UserKey;
use crate::domain::limit;
use crate::engine::command::UpdateBlockListCommand;

impl RequestReader {
    /// Reads a change of a block list.
    pub fn update_block_list_command(
        &self,
        wire: pb::UpdateBlockListRequest,
    ) -> Result<UpdateBlockListCommand, Rejection> {
        let mut problems = self.new_field_errors();
        field_checks::check_text_len(&wire.user_id, "user_id", &mut problems);
        let max = limit::BLOCKED_USERS_PER_LIST_MAX;
        let change = BlockListChange {
            clear_first: wire.replace,
            add: field_checks::checked_user_keys_from_ids(&wire.add_user_ids, max, "add_user_ids", &mut problems),
            remove: field_checks::checked_user_keys_from_ids(
                &wire.remove_user_ids,
                max,
                "remove_user_ids",
                &mut problems,
            ),
        };
        let added: BTreeSet<&UserKey> = change.add.iter().collect();
        if let Some(index) = change.remove.iter().position(|user| added.contains(user)) {
            let path = format!("remove_user_ids[{index}]");
            problems.add(path, "is in add_user_ids too; name each user in one of the lists");
        }
        let user = (!wire.user_id.is_empty()).then(|| UserKey::from_name(&wire.user_id));
        problems.into_result(UpdateBlockListCommand { user, change })
    }
}
