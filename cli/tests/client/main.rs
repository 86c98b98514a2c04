//! The client against a stand-in of the API.

mod datasets;
mod documents;
mod jobs;
mod local;
mod plan;
mod stand_in;
mod submit;
mod workers;
