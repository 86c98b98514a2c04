//! Tests of the decoder over checkpoints of `tests/fixtures`.

mod decoder;
mod families;
mod support;
