//! AES-128 on one block: 16 bytes become 16 other bytes of the same length, and only the key leads back.
//!
//! For ids and keys that are shown to others and read again. Equal blocks give equal blocks, so each purpose needs a key of
//! its own.

use std::fmt;

use aes::Aes128;
use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};

/// Length of a key and of a block, bytes.
pub const BLOCK_BYTES: usize = 16;

/// Cipher with one key.
#[derive(Clone)]
pub struct BlockCipher(Aes128);

impl BlockCipher {
    /// Cipher with `key`.
    pub fn new(key: [u8; BLOCK_BYTES]) -> Self {
        Self(Aes128::new(&key.into()))
    }

    /// Encrypted `block`.
    pub fn encrypt(&self, block: [u8; BLOCK_BYTES]) -> [u8; BLOCK_BYTES] {
        let mut block = block.into();
        self.0.encrypt_block(&mut block);
        block.into()
    }

    /// Inverse of `encrypt`. Each block is the encryption of one other.
    pub fn decrypt(&self, block: [u8; BLOCK_BYTES]) -> [u8; BLOCK_BYTES] {
        let mut block = block.into();
        self.0.decrypt_block(&mut block);
        block.into()
    }
}

impl fmt::Debug for BlockCipher {
    /// Prints no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCipher").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of FIPS 197, appendix C.1.
    #[test]
    fn block_cipher_is_aes_128() {
        let cipher = BlockCipher::new(std::array::from_fn(|at| at as u8));
        let plain = std::array::from_fn(|at| 0x11 * at as u8);
        let encrypted = 0x69c4_e0d8_6a7b_0430_d8cd_b780_70b4_c55a_u128.to_be_bytes();
        assert_eq!(cipher.encrypt(plain), encrypted);
        assert_eq!(cipher.decrypt(encrypted), plain);
        assert!(!format!("{cipher:?}").contains("01"), "{cipher:?}");
    }
}
