//! Policies without the engine around them, on seeded events: what a batch's queue gives its workers, what a plan covers.
