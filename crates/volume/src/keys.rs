//! The objects that become files, in the order of their keys: as a listing tells of them, or by their names.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc;

use flatout_engine::{Client, Entry, Error, ErrorKind, Listing};
use flatout_wire::location::Location;
use flatout_wire::time;

use crate::record::Record;

/// Objects that are asked for at once.
const ASKED_MOST: usize = 64;

/// All objects under a prefix.
pub struct ListedObjects(Listing);

impl ListedObjects {
    /// # Errors
    /// The location is in no bucket.
    pub fn under(client: &Client, source: &Location) -> Result<ListedObjects, Error> {
        client.list(source, true).map(ListedObjects)
    }
}

impl Iterator for ListedObjects {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Result<Record, Error>> {
        loop {
            match self.0.next()? {
                // A deep listing has none.
                Ok(Entry::Prefix(_)) => {}
                Ok(Entry::Object(object)) => {
                    let (key, size, modified_s, etag) =
                        (object.key, object.size, object.last_modified, object.etag);
                    return Some(Ok(Record { key, size, modified_s, etag }));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Asks for each object by its key, many at a time, and hands them out in the order of `keys`. An object that
/// is not there is handed out as its key and the reason.
pub fn asked_for(
    client: &Arc<Client>,
    source: &Location,
    keys: impl Iterator<Item = String> + Send + 'static,
) -> Result<AskedFor, Error> {
    let (questions, asked) = mpsc::sync_channel::<(String, mpsc::Sender<Answer>)>(0);
    let asked = Arc::new(std::sync::Mutex::new(asked));
    for _ in 0..ASKED_MOST {
        let (asked, client, source) = (asked.clone(), client.clone(), source.clone());
        let ask = move || {
            loop {
                let next = asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
                let Ok((key, answer)) = next else { return };
                // Nobody waits any more where the build has ended.
                let _ = answer.send(ask_one(&client, &source, key));
            }
        };
        let thread = std::thread::Builder::new().name("ask".into()).spawn(ask);
        thread.map_err(|error| Error::new(ErrorKind::LocalIo, flatout_engine::plain(&error)))?;
    }
    Ok(AskedFor { keys: Box::new(keys), questions, pending: VecDeque::new() })
}

type Answer = Result<Record, (String, Error)>;

/// The answers to questions about objects.
pub struct AskedFor {
    keys: Box<dyn Iterator<Item = String> + Send>,
    questions: mpsc::SyncSender<(String, mpsc::Sender<Answer>)>,
    pending: VecDeque<mpsc::Receiver<Answer>>,
}

impl Iterator for AskedFor {
    type Item = Answer;

    fn next(&mut self) -> Option<Answer> {
        while self.pending.len() < ASKED_MOST {
            let Some(key) = self.keys.next() else { break };
            let (sender, receiver) = mpsc::channel();
            if self.questions.send((key, sender)).is_err() {
                break;
            }
            self.pending.push_back(receiver);
        }
        self.pending.pop_front()?.recv().ok()
    }
}

fn ask_one(client: &Client, source: &Location, key: String) -> Answer {
    let Some(location) = source.with_key(key.clone()) else {
        return Err((key, Error::new(ErrorKind::Usage, "the bucket takes no such key")));
    };
    match client.stat(&location) {
        Ok(stat) => {
            let modified = stat.version.last_modified.as_deref().and_then(time::parse_http);
            let Some(size) = stat.version.size else {
                return Err((
                    key,
                    Error::new(ErrorKind::Unsupported, "the origin does not say how long it is"),
                ));
            };
            Ok(Record { key, size, modified_s: modified.unwrap_or(0), etag: stat.version.etag })
        }
        Err(error) => Err((key, error)),
    }
}
