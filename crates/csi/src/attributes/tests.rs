//! What volumes say of themselves, and what is made of it.
