//! The client against a stand-in of the API.

mod compare;
mod datasets;
mod documents;
mod gate;
mod jobs;
mod local;
mod plan;
mod stand_in;
mod submit;
mod workers;
