//! Text of an error with its causes.

/// Messages of an error and its causes, joined by colons. A cause that the message before it already contains is left out.
pub(super) fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut previous = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text.clone_from(&cause);
        } else if !previous.contains(&cause) {
            // Some libraries begin each message with that of the layer above.
            let rest = cause.strip_prefix(&format!("{previous}: ")).unwrap_or(&cause);
            text.push_str(": ");
            text.push_str(rest);
        }
        previous = cause;
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, anyhow};

    use super::error_text;

    #[test]
    fn error_text_has_each_cause_once() {
        let refused = || anyhow!("connection refused");
        assert_eq!(error_text(&refused()), "connection refused");
        assert_eq!(error_text(&refused().context("connect")), "connect: connection refused");
        let repeated = anyhow!("tcp: connection refused").context("tcp").context("call");
        assert_eq!(error_text(&repeated), "call: tcp: connection refused");
        let contained = Err::<(), _>(refused()).context("open: connection refused").unwrap_err();
        assert_eq!(error_text(&contained), "open: connection refused");
    }
}
