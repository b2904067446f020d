//! Images judged by others than us.
