//! The tests are in main.rs; this file only makes the folder a package.
