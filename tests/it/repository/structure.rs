//! Structure of the source: no import circles between files, unique type names, and methods that stand with their type.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::source_tree::{self, SourceFile, assert_exact_violations, assert_no_violations};

/// Source folders of the library crates, with the files that the rules hold for.
const CRATES: &[&str] = &[
    "src/",
    "crates/fireteam-domain/src/",
    "crates/fireteam-sim/src/",
    "clients/c/src/",
    "clients/rust/src/",
    "clients/probe/src/",
];

/// Definitions of one type name that are allowed in `src` and `crates`.
const DEFINITIONS_MAX: usize = 2;

/// Type names that foreign traits prescribe or that repeat by design: associated types, and the constants of rating systems.
const EXEMPT_NAMES: &[&str] = &["Item", "Error", "Future", "Response", "Output", "Service", "Constants", "Data"];

/// Inherent impls outside the file or folder of their type: `file: Type`. This list may only shrink.
const STRAY_IMPLS: &[&str] = &[];

#[test]
fn structure_has_no_import_circles() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    assert_no_violations(&CRATES.iter().flat_map(|root| import_circles(&tree, root)).collect::<Vec<_>>());
}

#[test]
fn structure_defines_type_names_at_most_twice() {
    assert_no_violations(&repeated_types(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn structure_keeps_inherent_impls_with_their_type() {
    let found = stray_impls(&source_tree::read_source_files(source_tree::repository_root()));
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let listed: BTreeSet<&str> = STRAY_IMPLS.iter().copied().collect();
    let new = found.difference(&listed).map(|it| format!("{it}: move the impl to the file or folder of its type"));
    let gone = listed.difference(&found).map(|it| format!("{it}: no longer stray; remove it from STRAY_IMPLS"));
    assert_no_violations(&new.chain(gone).collect::<Vec<_>>());
}

/// Code of a file without comments and without its unit tests.
fn code(source: &SourceFile) -> String {
    let mut code = String::new();
    let mut lines = source.text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.starts_with("mod tests {")) {
            break;
        }
        code.push_str(source_tree::strip_line_comment(line));
        code.push('\n');
    }
    code
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.ends_with("oracle.rs")
}

/// Module path of each file of a crate: `engine/queues.rs` is `engine::queues`, `lib.rs` and `main.rs` are empty.
fn modules<'a>(tree: &'a [SourceFile], root: &str) -> BTreeMap<String, &'a SourceFile> {
    let of_crate = tree.iter().filter(|source| source.path.starts_with(root) && source.path.ends_with(".rs"));
    of_crate
        .filter(|source| !is_test_file(&source.path))
        .map(|source| {
            let name = source.path[root.len()..].trim_end_matches(".rs").replace('/', "::");
            (if name == "lib" || name == "main" { String::new() } else { name }, source)
        })
        .collect()
}

fn import_circles(tree: &[SourceFile], root: &str) -> Vec<String> {
    let modules = modules(tree, root);
    let mut imports: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, source) in &modules {
        for path in imported_paths(&code(source), name) {
            if let Some(target) = longest_module(&modules, &path).filter(|target| *target != name) {
                imports.entry(name).or_default().insert(target);
            }
        }
    }
    let reaches = |from: &str, to: &str| {
        let (mut stack, mut seen) = (vec![from.to_owned()], BTreeSet::new());
        while let Some(at) = stack.pop() {
            for next in imports.get(at.as_str()).into_iter().flatten() {
                if *next == to {
                    return true;
                }
                if seen.insert(*next) {
                    stack.push((*next).to_owned());
                }
            }
        }
        false
    };
    let mut complaints = Vec::new();
    for (from, targets) in &imports {
        let circular = targets.iter().filter(|to| reaches(to, from));
        complaints.extend(circular.map(|to| format!("{root}: `{from}` imports `{to}`, which imports it back")));
    }
    complaints
}

/// Paths from the crate's root that a file names: in `use` declarations and inline.
fn imported_paths(code: &str, module: &str) -> Vec<Vec<String>> {
    let children: Vec<&str> = code.lines().filter_map(declared_module).collect();
    let mut paths = Vec::new();
    for statement in code.split(';') {
        let statement = statement.trim();
        let Some(at) = statement.rfind("use ") else { continue };
        if at != 0 && !statement[..at].ends_with([' ', '\n', ')']) {
            continue;
        }
        // `a::b as c` leads to `a::b`: the new name stands as a part that no file has.
        let tree: String = statement[at + 4..].replace(" as ", "::").split_whitespace().collect();
        match tree.split("::").next().unwrap_or_default() {
            "crate" | "super" | "self" => expand(&tree, &mut paths),
            child if children.contains(&child) => expand(&format!("self::{tree}"), &mut paths),
            _ => {}
        }
    }
    let mut inline = code.split("crate::");
    let mut before = inline.next().unwrap_or_default();
    for rest in inline {
        let path: String =
            rest.chars().take_while(|mark| mark.is_alphanumeric() || matches!(mark, '_' | ':')).collect();
        // `pub(in crate::a)` is a visibility, and `use crate::a::{…}` was expanded above.
        if !before.ends_with("(in ") && !path.ends_with("::") {
            paths.push(format!("crate::{path}"));
        }
        before = rest;
    }
    let own: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    paths.iter().map(|path| absolute(path, &own)).collect()
}

/// `part` of `pub(super) mod part;`.
fn declared_module(line: &str) -> Option<&str> {
    let (before, name) = line.trim().strip_suffix(';')?.rsplit_once("mod ")?;
    (before.is_empty() || before.starts_with("pub")).then_some(name)
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn expand(tree: &str, paths: &mut Vec<String>) {
    let Some((prefix, rest)) = tree.split_once('{') else { return paths.push(tree.to_owned()) };
    let (mut depth, mut start) = (0, 0);
    let inside = rest.strip_suffix('}').unwrap_or(rest);
    for (at, mark) in inside.char_indices() {
        match mark {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&format!("{prefix}{}", &inside[start..at]), paths);
                start = at + 1;
            }
            _ => {}
        }
    }
    if start < inside.len() {
        expand(&format!("{prefix}{}", &inside[start..]), paths);
    }
}

fn absolute(path: &str, own: &[&str]) -> Vec<String> {
    let parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
    let (mut base, mut rest) = match parts.first() {
        Some(&"self") => (own.to_vec(), &parts[1..]),
        Some(&"super") => (own.to_vec(), &parts[..]),
        _ => (Vec::new(), parts.get(1..).unwrap_or_default()),
    };
    while rest.first() == Some(&"super") {
        base.pop();
        rest = &rest[1..];
    }
    base.iter().chain(rest).map(|part| (*part).to_owned()).collect()
}

/// The file that a path leads to: its longest prefix that is a module with a file of its own.
fn longest_module<'a>(modules: &'a BTreeMap<String, &SourceFile>, path: &[String]) -> Option<&'a str> {
    (0..=path.len()).rev().find_map(|parts| modules.get_key_value(&path[..parts].join("::")).map(|(name, _)| &**name))
}

/// Names that `struct`, `enum`, `trait`, `type` or `union` define in a file, unit tests excluded.
fn defined_types(code: &str) -> Vec<&str> {
    let name = |line: &'_ str| -> Option<(usize, usize)> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = words.iter().position(|word| ["struct", "enum", "trait", "type", "union"].contains(word))?;
        let is_item = words[..at].iter().all(|word| word.starts_with("pub") || word.ends_with(')') || *word == "in");
        let text = words.get(at + 1).filter(|_| is_item)?;
        let length = text.chars().take_while(|mark| mark.is_alphanumeric() || *mark == '_').count();
        let start = text.as_ptr() as usize - line.as_ptr() as usize;
        text.starts_with(char::is_uppercase).then_some((start, start + length))
    };
    code.lines().filter_map(|line| name(line).map(|(start, end)| &line[start..end])).collect()
}

fn library_files(tree: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    let is_library = |path: &str| CRATES[..3].iter().any(|root| path.starts_with(root)) && path.ends_with(".rs");
    tree.iter().filter(move |source| is_library(&source.path) && !is_test_file(&source.path))
}

fn repeated_types(tree: &[SourceFile]) -> Vec<String> {
    let mut files: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for source in library_files(tree) {
        for name in defined_types(&code(source)) {
            files.entry(name.to_owned()).or_default().push(&source.path);
        }
    }
    let repeated =
        files.into_iter().filter(|(name, files)| DEFINITIONS_MAX < files.len() && !EXEMPT_NAMES.contains(&&**name));
    repeated.map(|(name, files)| format!("`{name}` is defined {} times: {}", files.len(), files.join(", "))).collect()
}

fn stray_impls(tree: &[SourceFile]) -> Vec<String> {
    let mut homes: BTreeMap<(usize, String), Vec<&str>> = BTreeMap::new();
    let crate_of = |path: &str| CRATES.iter().position(|root| path.starts_with(root)).unwrap_or_default();
    for source in library_files(tree) {
        for name in defined_types(&code(source)) {
            homes.entry((crate_of(&source.path), name.to_owned())).or_default().push(&source.path);
        }
    }
    let mut stray = Vec::new();
    for source in library_files(tree) {
        for line in code(source).lines().filter(|line| line.starts_with("impl") && !line.contains(" for ")) {
            let Some(name) = implemented_type(line) else { continue };
            let Some(files) = homes.get(&(crate_of(&source.path), name.clone())) else { continue };
            let is_home = |file: &str| {
                file == source.path || source.path.starts_with(&format!("{}/", file.trim_end_matches(".rs")))
            };
            if !files.iter().any(|file| is_home(file)) {
                stray.push(format!("{}: {name}", source.path));
            }
        }
    }
    stray
}

/// `Pass` of `impl<'a> Pass<'a> {`; generic parameters may nest.
fn implemented_type(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?;
    let mut depth = 0;
    let start = rest.char_indices().find_map(|(at, mark)| {
        match mark {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 && !mark.is_whitespace() => return Some(at),
            _ => {}
        }
        None
    })?;
    let path: String =
        rest[start..].chars().take_while(|mark| mark.is_alphanumeric() || matches!(mark, '_' | ':')).collect();
    path.rsplit("::").next().map(str::to_owned)
}

#[test]
fn structure_violations_are_reported() {
    let toy = source_tree::example_tree(&[
        ("src/lib.rs", "//! Library.\npub mod a;\npub mod b;\npub mod c;\npub mod d;\npub mod e;\n"),
        ("src/a.rs", "//! A.\nuse crate::b::{B, inner::Deep};\npub struct A;\npub struct Same;\n"),
        ("src/a/part.rs", "//! Part.\nuse super::A;\nimpl A {}\npub(super) struct Same;\n"),
        ("src/b.rs", "//! B.\npub struct B;\nimpl crate::a::A {}\npub(in crate::b) enum Same {}\n"),
        ("src/b/inner.rs", "//! Inner.\npub struct Deep;\n"),
        ("src/c.rs", "//! C.\nuse crate::b::B;\n#[cfg(test)]\nmod tests { use crate::a::A; struct Same; }\n"),
        ("src/d.rs", "//! D.\npub(crate) mod part;\npub use part::P;\npub struct D;\n"),
        ("src/d/part.rs", "//! Part.\nuse super::D;\npub struct P;\n"),
        ("src/e.rs", "//! E.\nmod part;\nuse crate::e::{part::Low, part::Lower};\n"),
        ("src/e/part.rs", "//! Part.\npub(in crate::e) struct Low;\npub(in crate::e) struct Lower;\n"),
    ]);
    assert_exact_violations(
        &import_circles(&toy, "src/"),
        &["`a` imports `b`", "`b` imports `a`", "`d` imports `d::part`", "`d::part` imports `d`"],
    );
    assert_exact_violations(&repeated_types(&toy), &["`Same` is defined 3 times"]);
    assert_exact_violations(&stray_impls(&toy), &["src/b.rs: A"]);
}
