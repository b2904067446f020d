//! `flatout presign`: a URL that reads or writes an object without keys, for a while.

use flatout_engine::Dialect;

use crate::args::Presign;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::origin;

pub fn run(args: &Presign, console: &Console) -> Result<Exit, Failure> {
    let location = origin::object("presign", &args.source)?;
    let client = origin::client(console, &args.knobs, &[Dialect::of(&location)])?;
    let expires_seconds = args.expires.as_secs();
    let url = match args.put {
        true => client.presign_put(&location, expires_seconds)?,
        false => client.presign_version(&location, args.version_id.as_deref(), expires_seconds)?,
    };
    // Nowhere else: not in an error, and in no log.
    console.answer(&url)?;
    console.event(
        Carries::Lines,
        &events::Presigned {
            key: location.key().to_owned(),
            source: location.to_string(),
            method: if args.put { "PUT" } else { "GET" },
            url,
            expires_seconds,
        },
    )?;
    Ok(Exit::Clean)
}
