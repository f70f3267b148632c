//! The one test binary; each module below is a chapter. One binary, because every file beside it would link the
//! whole server again.

// `cfg(test)` says nothing new to the compiler; it tells clippy that the helpers here are tests too.
#[cfg(test)]
mod coverage;
#[cfg(test)]
mod cpp_client;
#[cfg(test)]
mod floors;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod layering;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod tidy;
