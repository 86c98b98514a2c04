//! Every kernel on every instruction set of this processor, against the plain formula in float64
//! from the same numbers, and against libtorch's own function where there is one.
#![allow(clippy::float_cmp)] // the same number is meant
#![allow(clippy::single_range_in_vec_init)] // one window

mod activation;
mod attention;
mod loss;
mod norm;
mod product;
mod refusals;
mod rope;
mod support;
