//! List of ids as one bind value.

/// JSON array of 16-byte keys as hexadecimal digits: `["0123…", "4567…"]`.
pub(in crate::store::sqlite) fn hex_json_array<'a>(keys: impl ExactSizeIterator<Item = &'a [u8; 16]>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 + 35 * keys.len());
    text.push('[');
    for (index, key) in keys.enumerate() {
        text.push_str(if index == 0 { "\"" } else { ",\"" });
        let digits = key.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        text.extend(digits.map(|digit| char::from(DIGITS[usize::from(digit)])));
        text.push('"');
    }
    text.push(']');
    text
}
