//! Archives made by hand: what the reader makes of them, whole and damaged, and that it reads what the writer writes.

mod build;
mod damage;
mod reading;
mod round_trip;
