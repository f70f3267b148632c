//! Open silos: those with a live ticket or advertisement, and the limits on opening more.
//!
//! A client chooses its silo, and each silo costs an index, a queue and a task. So a call that opens one more is limited,
//! by the callers' own silos and by all silos of this server's memory. Silos that the operator names are not limited.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::auth::rate_limit::client_prefix_of;
use crate::domain::attribute::ValueOrigin;
use crate::domain::id::{SiloId, UserKey};
use crate::engine::command::Caller;
use crate::engine::error::EngineError;

/// Limits on open silos.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenSiloLimits {
    /// Maximum open silos.
    pub max_silos: u32,
    /// Maximum open silos that one caller has opened.
    pub max_silos_per_user: u32,
}

/// A silo and the limits on opening it, for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiloOverview {
    /// It has a live ticket or advertisement.
    pub is_open: bool,
    /// Number of open silos.
    pub open_silos: u32,
    /// Number of silos that the caller has opened.
    pub opened_by_account: u32,
    /// Limits; `None` if the operator named the silos.
    pub limits: Option<OpenSiloLimits>,
}

/// Caller whose ticket or advertisement opened a silo, as `max_silos_per_user` counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum SiloOpener {
    /// Authenticated caller.
    Account(UserKey),
    /// All anonymous callers at one IPv4 address or in one IPv6 /64.
    AddressPrefix(IpAddr),
    /// All anonymous callers without an address.
    AnonymousWithoutAddress,
}

/// Open silos of this server's memory.
#[derive(Debug, Default)]
pub(crate) struct OpenSilos {
    /// `None` if the operator named the silos.
    limits: Option<OpenSiloLimits>,
    state: Mutex<OpenSiloState>,
}

#[derive(Debug, Default)]
struct OpenSiloState {
    /// Ordered, because clients choose the ids: a hash table would need a slow hash function.
    silos: BTreeMap<SiloId, OpenSilo>,
    opened_counts: HashMap<SiloOpener, u32>,
}

#[derive(Debug)]
struct OpenSilo {
    /// Queues, advertisements and calls in progress that use the silo.
    use_count: u64,
    /// `None` if the silo counts for no caller.
    opener: Option<SiloOpener>,
}

/// Use of a silo by a call in progress; ends when dropped.
#[derive(Debug)]
pub(crate) struct SiloUse {
    open_silos: Arc<OpenSilos>,
    silo: SiloId,
}

impl OpenSilos {
    /// No open silos. Without limits, each silo may be opened.
    pub(crate) fn new(limits: Option<OpenSiloLimits>) -> Self {
        Self { limits, state: Mutex::default() }
    }

    /// Number of open silos.
    pub(crate) fn count(&self) -> usize {
        self.state.lock().silos.len()
    }

    /// State of `silo`, and the number of silos that the authenticated caller `account` has opened.
    pub(crate) fn silo_overview(&self, silo: SiloId, account: Option<UserKey>) -> SiloOverview {
        let state = self.state.lock();
        let opened = account.and_then(|account| state.opened_counts.get(&SiloOpener::Account(account)));
        SiloOverview {
            is_open: state.silos.contains_key(&silo),
            open_silos: u32::try_from(state.silos.len()).unwrap_or(u32::MAX),
            opened_by_account: opened.copied().unwrap_or(0),
            limits: self.limits,
        }
    }

    /// Uses `silo` for a call of `caller`, until the result is dropped; opens the silo if it is not open.
    ///
    /// Returns [`EngineError::TooManySilos`] if that would open one silo too many. Game servers enter players and
    /// advertise in all silos, so the limit per caller does not apply to them.
    pub(crate) fn use_silo(self: &Arc<Self>, silo: SiloId, caller: &Caller) -> Result<SiloUse, EngineError> {
        let mut state = self.state.lock();
        match state.silos.get_mut(&silo) {
            Some(open) => open.use_count += 1,
            None => {
                let opener = Some(SiloOpener::of_caller(caller)).filter(|_| !is_game_server(caller));
                if let Some(limits) = &self.limits {
                    state.check_limits(limits, silo, opener)?;
                }
                state.open(silo, opener);
            }
        }
        Ok(SiloUse { open_silos: Arc::clone(self), silo })
    }

    /// Adds a use of `silo` by a stored object of `owner`. Never refused: the object exists already.
    pub(crate) fn add_unlimited_use(&self, silo: SiloId, owner: Option<UserKey>) {
        let mut state = self.state.lock();
        match state.silos.get_mut(&silo) {
            Some(open) => open.use_count += 1,
            None => state.open(silo, owner.map(SiloOpener::Account)),
        }
    }

    /// Ends a use of `silo`; the last one closes it.
    pub(crate) fn remove_use(&self, silo: SiloId) {
        let mut state = self.state.lock();
        let Some(open) = state.silos.get_mut(&silo) else { return };
        open.use_count -= 1;
        if open.use_count == 0 {
            let opener = open.opener;
            state.silos.remove(&silo);
            opener.into_iter().for_each(|opener| state.count_closed(opener));
        }
    }
}

impl OpenSiloState {
    fn check_limits(
        &self,
        limits: &OpenSiloLimits,
        silo: SiloId,
        opener: Option<SiloOpener>,
    ) -> Result<(), EngineError> {
        let opened = opener.map_or(0, |opener| self.opened_counts.get(&opener).copied().unwrap_or(0));
        if opener.is_some() && opened >= limits.max_silos_per_user {
            return Err(EngineError::TooManySilos { silo, limit: limits.max_silos_per_user, is_per_caller: true });
        }
        if self.silos.len() >= limits.max_silos as usize {
            return Err(EngineError::TooManySilos { silo, limit: limits.max_silos, is_per_caller: false });
        }
        Ok(())
    }

    fn open(&mut self, silo: SiloId, opener: Option<SiloOpener>) {
        self.silos.insert(silo, OpenSilo { use_count: 1, opener });
        if let Some(opener) = opener {
            *self.opened_counts.entry(opener).or_insert(0) += 1;
        }
    }

    fn count_closed(&mut self, opener: SiloOpener) {
        if let Some(count) = self.opened_counts.get_mut(&opener) {
            *count -= 1;
            if *count == 0 {
                self.opened_counts.remove(&opener);
            }
        }
    }
}

impl SiloOpener {
    fn of_caller(caller: &Caller) -> Self {
        match (caller.subject, caller.ip_address) {
            (Some(subject), _) => Self::Account(subject),
            (None, Some(address)) => Self::AddressPrefix(client_prefix_of(address)),
            (None, None) => Self::AnonymousWithoutAddress,
        }
    }
}

/// Whether the caller is authenticated as a game server.
fn is_game_server(caller: &Caller) -> bool {
    caller.subject.is_some() && caller.program_kind == ValueOrigin::GameServer
}

impl Drop for SiloUse {
    fn drop(&mut self) {
        self.open_silos.remove_use(self.silo);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(max_silos: u32, max_silos_per_user: u32) -> Arc<OpenSilos> {
        Arc::new(OpenSilos::new(Some(OpenSiloLimits { max_silos, max_silos_per_user })))
    }

    fn account(name: &str) -> Caller {
        Caller { subject: Some(UserKey::from_name(name)), ..Caller::default() }
    }

    fn at_address(text: &str) -> Caller {
        Caller { ip_address: Some(text.parse().unwrap()), ..Caller::default() }
    }

    fn refused_limit(result: Result<SiloUse, EngineError>) -> Option<(u32, bool)> {
        match result {
            Ok(_) => None,
            Err(EngineError::TooManySilos { limit, is_per_caller, .. }) => Some((limit, is_per_caller)),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn silo_limit_per_caller_counts_the_silos_that_it_opened() {
        let silos = limited(100, 2);
        let (ann, bob) = (account("ann"), account("bob"));
        let first = silos.use_silo(SiloId(1), &ann).unwrap();
        let _second = silos.use_silo(SiloId(2), &ann).unwrap();
        assert_eq!(refused_limit(silos.use_silo(SiloId(3), &ann)), Some((2, true)));
        let _third = silos.use_silo(SiloId(3), &bob).unwrap();
        let _joined = silos.use_silo(SiloId(3), &ann).expect("an open silo may be entered");
        let _stays = silos.use_silo(SiloId(1), &bob).unwrap();
        drop(first);
        assert_eq!(refused_limit(silos.use_silo(SiloId(4), &ann)), Some((2, true)), "silo 1 is still open");
        drop(_stays);
        let _fourth = silos.use_silo(SiloId(4), &ann).expect("silo 1 is closed");
        assert_eq!(silos.count(), 3);
    }

    #[test]
    fn silo_limit_of_anonymous_callers_is_per_address_prefix() {
        let silos = limited(100, 1);
        let _first = silos.use_silo(SiloId(1), &at_address("2001:db8::1")).unwrap();
        assert_eq!(refused_limit(silos.use_silo(SiloId(2), &at_address("2001:db8::2"))), Some((1, true)));
        let _second = silos.use_silo(SiloId(2), &at_address("2001:db8:0:1::1")).unwrap();
        let _third = silos.use_silo(SiloId(3), &Caller::default()).unwrap();
        assert_eq!(refused_limit(silos.use_silo(SiloId(4), &Caller::default())), Some((1, true)));
    }

    #[test]
    fn silo_limit_per_caller_exempts_game_servers_and_the_total_does_not() {
        let silos = limited(3, 1);
        let server = Caller { program_kind: ValueOrigin::GameServer, ..account("backend") };
        let _uses: Vec<SiloUse> = (0..3).map(|silo| silos.use_silo(SiloId(silo), &server).unwrap()).collect();
        assert_eq!(refused_limit(silos.use_silo(SiloId(3), &server)), Some((3, false)));
        assert_eq!(refused_limit(silos.use_silo(SiloId(3), &account("ann"))), Some((3, false)));
    }

    #[test]
    fn silo_of_stored_objects_counts_for_their_owner_and_is_never_refused() {
        let silos = limited(1, 1);
        let ann = UserKey::from_name("ann");
        silos.add_unlimited_use(SiloId(1), Some(ann));
        silos.add_unlimited_use(SiloId(2), Some(ann));
        assert_eq!(refused_limit(silos.use_silo(SiloId(3), &account("ann"))), Some((1, true)));
        [1, 2].into_iter().for_each(|silo| silos.remove_use(SiloId(silo)));
        assert_eq!(silos.count(), 0);
        assert!(silos.state.lock().opened_counts.is_empty());
    }

    #[test]
    fn silos_that_the_operator_names_are_not_limited() {
        let silos = Arc::new(OpenSilos::new(None));
        let _uses: Vec<SiloUse> = (0..50).map(|silo| silos.use_silo(SiloId(silo), &account("ann")).unwrap()).collect();
        assert_eq!(silos.count(), 50);
    }
}
