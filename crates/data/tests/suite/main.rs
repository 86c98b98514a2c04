//! Datasets of every shape through the tokenizer of a fixture.

mod bench;
mod cache;
mod containers;
mod damaged;
mod documents;
mod faults;
mod groups;
mod inspect;
mod joined;
mod limits;
mod masks;
mod parquet;
mod scope;
mod sources;
