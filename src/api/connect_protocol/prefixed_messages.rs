//! Messages with the five-byte prefix that gRPC and the streams of the Connect protocol share: flags, then the length.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// Bytes of a prefix.
const PREFIX_BYTES: usize = 5;

/// A length in a prefix is above the limit of its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageTooLarge {
    /// Length in the prefix, bytes.
    pub(super) bytes: usize,
}

/// Splits received bytes into messages.
#[derive(Debug)]
pub(super) struct PrefixedMessages {
    received: BytesMut,
    message_bytes_max: usize,
}

impl PrefixedMessages {
    /// Creates a splitter of messages with at most `message_bytes_max` bytes each.
    pub(super) fn new(message_bytes_max: usize) -> Self {
        Self { received: BytesMut::new(), message_bytes_max }
    }

    /// Appends received bytes.
    pub(super) fn push(&mut self, data: &[u8]) {
        self.received.extend_from_slice(data);
    }

    /// Flags and bytes of the next message; `None` until it is complete. Fails as soon as its prefix says too much.
    pub(super) fn next_message(&mut self) -> Result<Option<(u8, Bytes)>, MessageTooLarge> {
        let Some([flags, length @ ..]) = self.received.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let (flags, length) = (*flags, u32::from_be_bytes(*length) as usize);
        if length > self.message_bytes_max {
            return Err(MessageTooLarge { bytes: length });
        }
        if self.received.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.received.advance(PREFIX_BYTES);
        Ok(Some((flags, self.received.split_to(length).freeze())))
    }

    /// Whether no part of a message is left.
    pub(super) fn is_empty(&self) -> bool {
        self.received.is_empty()
    }
}

/// A message with its prefix.
pub(super) fn prefix_message(flags: u8, message: &[u8]) -> Bytes {
    let mut prefixed = BytesMut::with_capacity(PREFIX_BYTES + message.len());
    prefixed.put_u8(flags);
    // Messages are limited far below 4 GiB.
    prefixed.put_u32(message.len() as u32);
    prefixed.put_slice(message);
    prefixed.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_split_at_any_boundary_of_the_data() {
        let wire = [&prefix_message(0, b"one")[..], &prefix_message(2, b""), &prefix_message(0, b"three")].concat();
        for step in 1..=wire.len() {
            let (mut messages, mut found) = (PrefixedMessages::new(5), Vec::new());
            for data in wire.chunks(step) {
                messages.push(data);
                while let Some((flags, message)) = messages.next_message().unwrap() {
                    found.push((flags, message.to_vec()));
                }
            }
            assert_eq!(found, [(0, b"one".to_vec()), (2, Vec::new()), (0, b"three".to_vec())], "steps of {step}");
            assert!(messages.is_empty());
        }
    }

    #[test]
    fn too_large_message_is_refused_by_its_prefix_alone() {
        let mut messages = PrefixedMessages::new(5);
        messages.push(&[0, 0, 0, 0, 6]);
        assert_eq!(messages.next_message(), Err(MessageTooLarge { bytes: 6 }));
    }
}
