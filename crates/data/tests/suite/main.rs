//! Datasets of every shape through the tokenizer of a fixture.

mod bench;
mod cache;
mod documents;
mod faults;
mod limits;
