//! Archives built by hand, whole and damaged, and archives of the writer, read by the reader.

mod build;
mod damage;
mod reading;
mod round_trip;
