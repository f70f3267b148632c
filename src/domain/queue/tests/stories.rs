//! What the documents say, told one by one.
