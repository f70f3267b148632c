//! The console: one embedded page of three files, built from `console/`. It has no data of its own. Its script makes the same calls
//! that any operator makes, with the operator's own token.

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

/// The files under `/console/`, with their content types.
const FILES: [(&str, &str, &[u8]); 3] = [
    ("/console/", "text/html; charset=utf-8", include_bytes!("page/index.html")),
    ("/console/console.js", "text/javascript; charset=utf-8", include_bytes!("page/console.js")),
    ("/console/console.css", "text/css; charset=utf-8", include_bytes!("page/console.css")),
];

/// The page loads its own files and calls its own server, and nothing else. Nothing is inline, and no other page may embed it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
                                       base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Adds the files of the console to `router`. They are served without authentication; the calls of the script are not.
pub(super) fn add_page(router: Router) -> Router {
    let router = router.route("/console", get(async || Redirect::permanent("/console/")));
    FILES.into_iter().fold(router, |router, (path, content_type, content)| {
        router.route(path, get(async move || file_response(content_type, content)))
    })
}

fn file_response(content_type: &'static str, content: &'static [u8]) -> Response {
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        // A new server may have another page.
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Largest total of the files, bytes.
    const PAGE_BYTES_MAX: usize = 200 * 1024;

    /// SEC-16: the page is small, has nothing inline, and its policy allows nothing inline.
    #[test]
    fn page_is_small_and_has_nothing_inline() {
        let total: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        assert!(total <= PAGE_BYTES_MAX, "{total} bytes");
        let html = std::str::from_utf8(FILES[0].2).unwrap();
        for inline in ["<style", "style=", "onclick", "onload", "javascript:", "<script>"] {
            assert!(!html.contains(inline), "{inline}");
        }
        assert!(!CONTENT_SECURITY_POLICY.contains("unsafe"), "{CONTENT_SECURITY_POLICY}");
    }

    /// SEC-16: the script never parses text as markup or as code.
    #[test]
    fn page_script_parses_no_text_as_markup() {
        let script = std::str::from_utf8(FILES[1].2).unwrap();
        for parser in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"] {
            assert!(!script.contains(parser), "{parser}");
        }
    }
}
