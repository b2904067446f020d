//! The loop of a worker: whatever is to be done next, an object or a part of one.

use std::rc::Rc;

use super::batch::{Batch, Worker};
use super::queue::Work;
use crate::drive::{drive, drive_lead};
use crate::hold::Hold;
use crate::part::Part;
use crate::shard::Shard;

/// Works until the batch has nothing more to do, or is to stop; what is on its way then is dropped.
pub(crate) async fn drive_many(shard: Rc<Shard>, number: u32, worker: Worker) {
    tokio::select! {
        biased;
        () = work(&shard, number, &worker) => {}
        () = worker.batch.stopped() => {}
    }
}

async fn work(shard: &Rc<Shard>, number: u32, worker: &Worker) {
    while let Some(work) = worker.batch.take(worker.prefers_parts).await {
        match work {
            Work::Object(task) => {
                if let Some(hold) = worker.batch.begin(task) {
                    hold.join_shard(number);
                    drive_lead(shard.clone(), hold).await;
                }
            }
            Work::Part(hold) => {
                hold.join_shard(number);
                part(shard, &worker.batch, &hold).await;
            }
        }
    }
}

/// Fetches one part, if there is one left.
async fn part(shard: &Rc<Shard>, batch: &Batch, hold: &Hold) {
    if hold.is_stopped() {
        return batch.close(hold);
    }
    let one = async {
        match hold.take_part(None).await? {
            Some(turn) => Part::start(hold, turn).fetch(shard, None).await,
            None => {
                batch.close(hold);
                Ok(())
            }
        }
    };
    drive(hold, one).await;
}
