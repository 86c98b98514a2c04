//! Damaged checkpoints: which one, and what is done to its files.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::files;
use super::targets::{Target, files_of};
use super::tree::{Step, Tree};

/// A checkpoint and the damage to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Case {
    /// The folder or file it starts from, below the repository.
    pub(crate) base: String,
    /// The changes, in their order; those of trees before those of bytes.
    pub(crate) edits: Vec<Edit>,
}

/// A change of one file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Edit {
    pub(crate) file: String,
    #[serde(flatten)]
    pub(crate) change: Change,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// The value at a path becomes this text.
    Set(Vec<Step>, String),
    /// It becomes a text that is there many times, with another before and one behind; `#` in it
    /// is the number of the time.
    SetMany(Vec<Step>, String, String, usize, String),
    /// It is there this many times, or not at all.
    Repeat(Vec<Step>, usize),
    /// It becomes the value at another path.
    Copy(Vec<Step>, Vec<Step>),
    /// The object at the top gets a field of this number from another checkpoint of the target.
    Graft(usize),
    /// Bytes of the header are written over, at this share of 65536 of it.
    Overwrite(u16, Vec<u8>),
    /// Bytes are put between others.
    Insert(u16, Vec<u8>),
    /// The file ends here.
    Cut(u16),
}

impl Case {
    /// Puts the damaged checkpoint into an empty folder. Returns the number of bytes of the files
    /// that were open to damage, and of the others.
    pub(crate) fn write(&self, target: &Target, to: &Path) -> (usize, usize) {
        let (mut open, mut other) = (0, 0);
        for (name, bytes) in files_of(&self.base) {
            let edits = || self.edits.iter().filter(|edit| edit.file == name);
            let bytes = if edits().next().is_none() {
                bytes
            } else {
                damaged(target, &name, &bytes, edits().map(|edit| &edit.change))
            };
            *(if target.damages(&name) {
                &mut open
            } else {
                &mut other
            }) += bytes.len();
            fs::write(to.join(name), bytes).unwrap();
        }
        (open, other)
    }
}

fn damaged<'a>(
    target: &Target,
    name: &str,
    bytes: &[u8],
    changes: impl Iterator<Item = &'a Change> + Clone,
) -> Vec<u8> {
    let mut parts = files::read(name, bytes);
    let touches_bytes = |change: &&Change| {
        matches!(
            change,
            Change::Overwrite(..) | Change::Insert(..) | Change::Cut(_)
        )
    };
    if let Some(tree) = &mut parts.tree {
        for change in changes.clone().filter(|change| !touches_bytes(change)) {
            change_tree(target, tree, change);
        }
    }
    let (mut bytes, header) = files::write(name, &parts);
    for change in changes.filter(touches_bytes) {
        let place = |share: u16| usize::from(share) * header.min(bytes.len()) / 65536;
        match change {
            Change::Overwrite(share, with) => {
                let at = place(*share);
                let end = bytes.len().min(at + with.len());
                bytes[at..end].copy_from_slice(&with[..end - at]);
            }
            Change::Insert(share, with) => {
                let at = place(*share);
                bytes.splice(at..at, with.iter().copied());
            }
            Change::Cut(share) => bytes.truncate(usize::from(*share) * bytes.len() / 65536),
            _ => {}
        }
    }
    bytes
}

fn change_tree(target: &Target, tree: &mut Tree, change: &Change) {
    match change {
        Change::Set(path, raw) => *tree.at(path) = Tree::of(raw),
        Change::SetMany(path, before, raw, times, behind) => {
            let one = |index: usize| raw.replace('#', &index.to_string());
            let many: String = (0..*times).map(one).collect();
            let text = format!("{before}{many}{behind}");
            *tree.at(path) = Tree::of(&text);
        }
        Change::Repeat(path, times) => tree.repeat(path, *times),
        Change::Copy(path, from) => {
            let value = tree.at(from).clone();
            *tree.at(path) = value;
        }
        Change::Graft(number) => {
            if let (Tree::Object(pairs), Some((key, value))) = (tree, target.graft(*number)) {
                pairs.retain(|(name, _)| *name != key);
                pairs.push((key, value));
            }
        }
        Change::Overwrite(..) | Change::Insert(..) | Change::Cut(_) => {}
    }
}

/// Values at the borders of what is meant.
const VALUES: [&str; 40] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "31",
    "32",
    "64",
    "255",
    "4095",
    "4096",
    "4097",
    "65536",
    "16777215",
    "16777216",
    "2147483648",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "-0.0",
    "0.5",
    "1e-320",
    "1e3",
    "1e308",
    "1e999",
    "NaN",
    "null",
    "true",
    "false",
    "\"\"",
    "\"a\"",
    "\"\\u0000\\ud800\"",
    "\"4096\"",
    "[]",
    "{}",
    "[{\"\":[0]}]",
];

fn path() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..1_usize << 16).prop_map(Step::Index), 1..5)
}

/// Any change of a tree or of bytes.
fn change() -> impl Strategy<Value = Change> {
    let value = || prop::sample::select(&VALUES[..]).prop_map(str::to_owned);
    let many = prop_oneof![
        Just(("[", "0", "]")),
        Just(("[", "[],", "[]]")),
        Just(("[", "{\"\":0},", "0]")),
        Just(("", "[", "")),
        Just(("", "{\"a\":", "0")),
        Just(("\"", "a", "\"")),
        Just(("\"", "(", "\"")),
        Just(("\"", "{{[", "\"")),
        Just(("", "9", "")),
    ];
    let byte = || prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(b'"'), Just(b'9')];
    let bytes = move || prop::collection::vec(byte(), 1..9);
    prop_oneof![
        8 => (path(), value()).prop_map(|(path, value)| Change::Set(path, value)),
        2 => (path(), any::<u64>()).prop_map(|(path, value)| Change::Set(path, value.to_string())),
        1 => (path(), many, 0..3000_usize).prop_map(|(path, (before, one, behind), times)| {
            Change::SetMany(path, before.into(), one.into(), times, behind.into())
        }),
        3 => (path(), prop_oneof![4 => Just(0_usize), 2 => Just(2), 1 => 3..300_usize])
            .prop_map(|(path, times)| Change::Repeat(path, times)),
        3 => (path(), path()).prop_map(|(path, from)| Change::Copy(path, from)),
        3 => any::<usize>().prop_map(Change::Graft),
        2 => (any::<u16>(), bytes()).prop_map(|(at, bytes)| Change::Overwrite(at, bytes)),
        1 => (any::<u16>(), bytes()).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        1 => any::<u16>().prop_map(Change::Cut),
    ]
}

/// Any damage to any checkpoint of a target.
pub(crate) fn cases(target: &'static Target) -> impl Strategy<Value = Case> {
    prop::sample::select(target.bases()).prop_flat_map(move |base| {
        let names: Vec<String> = files_of(&base)
            .into_keys()
            .filter(|name| target.damages(name))
            .collect();
        let edit = (prop::sample::select(names), change().boxed())
            .prop_map(|(file, change)| Edit { file, change });
        let number = prop_oneof![3 => Just(1_usize), 2 => Just(2), 1 => 3..8_usize];
        let edits = number.prop_flat_map(move |number| prop::collection::vec(edit.clone(), number));
        (Just(base), edits).prop_map(|(base, edits)| Case { base, edits })
    })
}
