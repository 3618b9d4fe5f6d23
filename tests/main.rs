//! Whole-process tests. Each starts a real child with the real library and, but where it says
//! otherwise, the fake driver of tests/fake_cuda with 4 GPUs, and compares exact output.
#![allow(missing_docs)]

mod seal;
mod shipping;
mod support;

mod artefact;
mod audit;
mod cases_a;
mod cases_b;
mod cases_c;
mod cases_d;
mod clients;
mod doctor;
mod doctor_shell;
mod explain;
mod guard;
mod install;
mod packages;
mod pieces;
mod policy_file;
mod ps;
mod reading;
mod readme;
mod report;
mod routes;
mod rules;
mod run;
mod trace;
mod traps;
